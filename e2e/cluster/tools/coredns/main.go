// CoreDNS with only the plugins that the cluster's Corefile names: the stock
// program links every cloud's client library, which triples its build time.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order is CoreDNS' own: a query passes the plugins in this order.
	dnsserver.Directives = []string{
		"ready", "health", "errors", "log", "cache", "template", "kubernetes", "forward",
	}
	coremain.Run()
}
