"""The command line: `python -m e2e.cluster {build,up,down,status,load-image,env}`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from . import builder
from .errors import ClusterError
from .provider import DEFAULT_PROVIDER, PROVIDERS, get_provider
from .settings import DEFAULT_NAME, from_environment

_ENVIRONMENT = """\
environment:
  KVCP_PROVIDER            embedded (default), kind or existing
  KVCP_CLUSTER             the cluster's name (default: kvcp)
  KVCP_CACHE               built programs and state (default: ~/.cache/kvcachepool)
  KVCP_TOOLS               a folder with the programs, instead of building them
  KVCP_PORT_BASE           first of the host ports (default: 16400)
  KVCP_POD_PREFIX          /24 of pods and node (default: 10.244.0)
  KVCP_SERVICE_PREFIX      /16 of Services (default: 10.96)
  KVCP_GPUS, KVCP_GPU_PRODUCT, KVCP_GPU_MEMORY_MIB, KVCP_GPU_DRIVER, KVCP_GPU_CUDA, KVCP_GPU_RESOURCE
                           the GPUs that the node pretends to have (default: 8 H100, driver 570, CUDA 12.8)
  KVCP_EXTENDED_RESOURCES  more of the kind, such as rdma/hca_shared_devices_a=16
  KVCP_EXISTING_CONTEXT    with `existing`: the context that may be used
  KVCP_LOAD_IMAGE_CMD      with `existing`: how an image gets there; {archive} and {ref} are filled in
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description="Clusters for tests and the demo.",
        epilog=_ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--provider", choices=PROVIDERS, help=f"default: {DEFAULT_PROVIDER}")
    common.add_argument("--name", help=f"the cluster's name, default: {DEFAULT_NAME}")
    commands = top.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the programs of the embedded cluster, kubectl and helm")
    build.add_argument("--prune", action="store_true", help="then remove builds of other versions")
    commands.add_parser("up", parents=[common], help="start, or repair what does not run; prints the kubeconfig")
    down = commands.add_parser("down", parents=[common], help="stop and leave nothing on the host")
    down.add_argument("--purge", action="store_true", help="remove loaded images too")
    commands.add_parser("status", parents=[common], help="say what runs; exit code 1 unless all does")
    load = commands.add_parser("load-image", parents=[common], help="give pods an image from an archive")
    load.add_argument("archive", type=Path)
    load.add_argument("ref", help="its name, such as localhost/operator:dev")
    commands.add_parser("env", parents=[common], help='print shell settings: eval "$(python -m e2e.cluster env)"')
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except (ClusterError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.command == "build":
        print(builder.build())
        for path in builder.prune() if options.prune else []:
            print(f"removed {path}")
        return 0
    provider = get_provider(options.provider, from_environment(options.name))
    match options.command:
        case "up":
            print(provider.up())
        case "down":
            provider.down(purge=options.purge)
        case "load-image":
            provider.load_image(options.archive, options.ref)
        case "env":
            print(f"export KUBECONFIG={shlex.quote(str(provider.kubeconfig))}")
            tools = builder.find_tools()
            search = os.environ.get("PATH", "")
            if tools and str(tools) not in search.split(":"):
                print(f"export PATH={shlex.quote(f'{tools}:{search}')}")
        case "status":
            states = provider.status()
            for component, state in states.items():
                print(f"{component:26} {state}")
            return 0 if all(state.startswith("running") for state in states.values()) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
