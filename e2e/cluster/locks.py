"""One at a time: a file lock that a killed holder cannot leave behind."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .stages import Stages


@contextmanager
def locked(path: Path, stages: Stages, what: str) -> Iterator[None]:
    """Hold the lock; say so before waiting for whoever else holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stages.say(f"another {what} is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
