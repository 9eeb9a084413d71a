"""The init container that waits for the store's master.

The operator makes engines only after the master is ready; this covers what it cannot order: a node that starts
all its pods again. Without it the engine itself gives up after 20 tries and a minute and a half, and is restarted.
"""

from typing import Any, Final

from kvcachepool import constants
from kvcachepool.render.pod import CONTAINER_SECURITY

WAIT_SECONDS: Final = 300

_SCRIPT: Final = """\
import socket, sys, time
host, port, deadline = sys.argv[1], int(sys.argv[2]), time.monotonic() + int(sys.argv[3])
while True:
    try:
        socket.create_connection((host, port), timeout=2).close()
        break
    except OSError as error:
        if time.monotonic() > deadline:
            sys.exit(f"MasterUnreachable: {host}:{port} did not accept a connection in {sys.argv[3]} s: {error}")
        time.sleep(1)
"""


def wait_container(image: dict[str, Any], host: str, port: int) -> dict[str, Any]:
    """Ends as soon as the port accepts a connection; fails with a plain sentence after `WAIT_SECONDS`."""
    return {
        "name": constants.WAIT_CONTAINER,
        **image,
        "command": ["python3", "-c", _SCRIPT, host, str(port), str(WAIT_SECONDS)],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
