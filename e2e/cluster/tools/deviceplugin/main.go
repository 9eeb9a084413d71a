// Deviceplugin stands in for the RDMA shared device plugin where there is no
// RDMA card. It reads that plugin's configuration file and offers each resource
// over the kubelet's socket (device plugin API v1beta1), so that scheduling,
// admission and allocation are the kubelet's own. What it hands to a container
// is a device node and an environment variable that names the shares given.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// The kubelet forgets its plugins when it starts; they must look for that themselves.
const lookEvery = 2 * time.Second

type resource struct {
	Prefix string `json:"resourcePrefix"`
	Name   string `json:"resourceName"`
	Shares int    `json:"rdmaHcaMax"`
}

func (r resource) full() string { return r.Prefix + "/" + r.Name }

func (r resource) socket() string {
	return "kvcp-" + strings.NewReplacer("/", "-", ".", "-").Replace(r.full()) + ".sock"
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource
	stop <-chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch tells the shares once and stays: they never change. An empty list
// at the end makes the kubelet withdraw them at once.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	devices := make([]*api.Device, p.Shares)
	for index := range devices {
		devices[index] = &api.Device{ID: fmt.Sprintf("%s-%d", p.Name, index), Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-p.stop:
		return stream.Send(&api.ListAndWatchResponse{})
	case <-stream.Context().Done():
		return nil
	}
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		log.Printf("%s: %v", p.full(), container.DevicesIds)
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"KVCP_STAND_IN_SHARES": strings.Join(container.DevicesIds, ",")},
			Devices: []*api.DeviceSpec{
				{HostPath: "/dev/null", ContainerPath: "/dev/infiniband/rdma_cm", Permissions: "rw"},
			},
		})
	}
	return answer, nil
}

// serve offers one resource until the socket is gone (the kubelet removes it when it starts) or the plugin stops.
func serve(r resource, folder string, stop <-chan struct{}) error {
	path := filepath.Join(folder, r.socket())
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{resource: r, stop: stop})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	if err := register(r, folder); err != nil {
		return err
	}
	log.Printf("%s: %d shares", r.full(), r.Shares)
	for {
		select {
		case <-stop:
			time.Sleep(time.Second) // the last answer of ListAndWatch is on its way
			return nil
		case <-time.After(lookEvery):
			if _, err := os.Stat(path); err != nil {
				return nil
			}
		}
	}
}

func register(r resource, folder string) error {
	kubelet := "unix://" + filepath.Join(folder, filepath.Base(api.KubeletSocket))
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	wait, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(wait, &api.RegisterRequest{
		Version: api.Version, Endpoint: r.socket(), ResourceName: r.full(), Options: &api.DevicePluginOptions{},
	})
	return err
}

// What the plugin that it stands in for accepts.
var validName = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)

func validate(resources []resource) error {
	seen := map[string]bool{}
	for _, r := range resources {
		if !validName.MatchString(r.Name) {
			return fmt.Errorf("resource name %q contains invalid characters", r.Name)
		}
		if seen[r.Name] {
			return fmt.Errorf("resource name %q already exists", r.Name)
		}
		seen[r.Name] = true
	}
	if len(resources) == 0 {
		return errors.New("no resources configuration found")
	}
	return nil
}

func read(path string) ([]resource, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var config struct {
		List []resource `json:"configList"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return config.List, validate(config.List)
}

func main() {
	path := flag.String("config", "/k8s-rdma-shared-dev-plugin/config.json", "configuration of the RDMA shared device plugin")
	folder := flag.String("folder", api.DevicePluginPath, "folder of the kubelet's sockets")
	flag.Parse()
	resources, err := read(*path)
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	for _, r := range resources {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				if err := serve(r, *folder, stop); err != nil {
					log.Printf("%s: %v", r.full(), err)
				}
				select {
				case <-stop:
					return
				case <-time.After(lookEvery):
				}
			}
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	close(stop)
	for range resources {
		<-done
	}
}
