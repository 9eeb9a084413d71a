"""Says what is going on and how long it took: a cluster start that is silent for a minute looks broken."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stages:
    """Prints one line a stage with its time, on stderr since stdout belongs to what a command answers."""

    def __init__(self, prefix: str, *, quiet: bool = False) -> None:
        self._prefix = prefix
        self._quiet = quiet
        self._start = time.monotonic()

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        except BaseException:
            self.say(f"{title}: failed after {time.monotonic() - begin:.1f} s")
            raise
        self.say(f"{title}: {time.monotonic() - begin:.1f} s")

    def say(self, text: str) -> None:
        if not self._quiet:
            print(f"[{self._prefix} {time.monotonic() - self._start:6.1f}s] {text}", file=sys.stderr, flush=True)
