"""Clusters for tests, benches and the demo.

`get_provider()` gives a whole cluster where pods run; `ControlPlane` gives
only an API server with its controllers, which starts in seconds.
"""

from .controlplane import ControlPlane
from .errors import ClusterError, MissingToolError, RefusedError, StartFailedError
from .provider import PROVIDERS, Provider, get_provider
from .settings import Hardware, Settings, from_environment

__all__ = [
    "PROVIDERS",
    "ClusterError",
    "ControlPlane",
    "Hardware",
    "MissingToolError",
    "Provider",
    "RefusedError",
    "Settings",
    "StartFailedError",
    "from_environment",
    "get_provider",
]
