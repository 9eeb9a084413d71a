"""Host processes of our own containers, so that a test can stop one as a hanging program would.

The embedded cluster's pods are processes of this machine; each is found by its container's id and signalled by
its process id.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.harness.kube import Json


def container_processes(pod: Json, container: str) -> list[int]:
    """Process ids of a pod's container; none while it does not run."""
    status = next(c for c in pod["status"]["containerStatuses"] if c["name"] == container)
    ident = status.get("containerID", "").rpartition("/")[2]
    found: list[int] = []
    if not ident:
        return found
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if ident in (entry / "cgroup").read_text():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return sorted(found)


def kill(pod: Json, container: str) -> bool:
    """SIGKILL, as the kernel or a node failure would; False when the container is between two lives."""
    found = container_processes(pod, container)
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return bool(found)


@contextmanager
def frozen(pod: Json, container: str) -> Iterator[None]:
    """Within the context the container accepts connections (the kernel does) and never answers."""
    processes = container_processes(pod, container)
    assert processes, f"no process of {pod['metadata']['name']}/{container}"
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):  # a liveness probe may have ended it
                os.kill(process, signal.SIGCONT)
