"""Starts, recognises and stops the cluster's long-running programs.

A process outlives the command that started it, so it is recorded in a file.
A recorded pid may by now belong to a stranger: a process counts as ours only
if its start time and its program's path are the recorded ones. Nothing else
is ever signalled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import StartFailedError

_START_MARK = "=== started:"
_LOG_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Daemon:
    """A program, its arguments, and the files whose change means that it must start anew."""

    name: str
    argv: tuple[str, ...]
    configs: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        content = hashlib.sha256("\0".join(self.argv).encode())
        for path in self.configs:
            content.update(b"\0" + path.read_bytes())
        return content.hexdigest()[:16]


@dataclass(frozen=True)
class Record:
    """What the pid file says about a process."""

    pid: int
    started: str
    program: str
    digest: str

    def alive(self) -> bool:
        if start_time(self.pid) != self.started:
            return False
        argv = command_line(self.pid)
        return bool(argv) and argv[0] == self.program


def myself() -> Record:
    """Describe this process, so that others can tell later whether it still runs."""
    return Record(os.getpid(), start_time(os.getpid()) or "", command_line(os.getpid())[0], "")


def start_time(pid: int) -> str | None:
    """Return the kernel's start time of a process, None if it is gone or a zombie."""
    try:
        # The second field is the name in brackets and may hold anything, blanks too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A killed leader is a zombie while its other threads still hold its ports and files: not gone before they are.
    return None if fields[0] in "ZX" and int(fields[17]) <= 1 else fields[19]


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


class Supervisor:
    """The daemons of one state folder."""

    def __init__(self, state: Path) -> None:
        self._pids = state / "pids"
        self._logs = state / "logs"
        self._children: set[int] = set()

    def record(self, name: str) -> Record | None:
        try:
            return Record(**json.loads((self._pids / f"{name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def since(self, name: str) -> float:
        """Return when it was started, in seconds since the epoch; 0 if it never was."""
        try:
            return (self._pids / f"{name}.json").stat().st_mtime
        except OSError:
            return 0.0

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._pids.glob("*.json"))

    def alive(self, name: str) -> bool:
        record = self.record(name)
        if record is None:
            return False
        return not self._reaped(record.pid) if record.pid in self._children else record.alive()

    def current(self, daemon: Daemon) -> bool:
        """Tell whether it runs with exactly these arguments and configuration."""
        record = self.record(daemon.name)
        return self.alive(daemon.name) and record is not None and record.digest == daemon.digest()

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def ensure(self, daemon: Daemon) -> bool:
        """Start it unless it runs as asked; True if it was started."""
        if self.current(daemon):
            return False
        self.stop(daemon.name)
        self._pids.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self.log(daemon.name)
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            output.write(f"{_START_MARK} {' '.join(daemon.argv)}\n".encode())
            output.flush()
            pid = os.posix_spawn(
                daemon.argv[0],
                daemon.argv,
                {**os.environ, **daemon.environment},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                ],
                setsid=True,  # Ctrl-C at the terminal is not meant for it
            )
        self._children.add(pid)
        # Until the kernel has loaded the program its command line is empty, and nobody could recognise it.
        wait(lambda: bool(command_line(pid)) or start_time(pid) is None, 5, interval=0.001)
        record = Record(pid, start_time(pid) or "", daemon.argv[0], daemon.digest())
        path = self._pids / f"{daemon.name}.json"
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(record.__dict__))
        scratch.replace(path)
        return True

    def stop(self, name: str, *, grace: float = 15.0) -> bool:
        """Ask it to stop, insist after `grace` seconds, forget it; True if it was running."""
        record = self.record(name)
        running = record is not None and self.alive(name)
        if running and record is not None:
            _signal(record.pid, signal.SIGTERM)
            if not wait(lambda: not self.alive(name), grace):
                _signal(record.pid, signal.SIGKILL)
                wait(lambda: not self.alive(name), 5)
        (self._pids / f"{name}.json").unlink(missing_ok=True)
        return running

    def kill(self, name: str) -> None:
        """End it at once, as a crash would; it stays recorded."""
        record = self.record(name)
        if record is not None and self.alive(name):
            _signal(record.pid, signal.SIGKILL)
            wait(lambda: not self.alive(name), 5)

    def wait_ready(self, name: str, ready: Callable[[], bool], timeout: float) -> None:
        """Wait until `ready`; fail at once with the end of its log if the process dies."""
        alive = True

        def done() -> bool:
            nonlocal alive
            alive = self.alive(name)
            return not alive or ready()

        if not wait(done, timeout, interval=0.25) or not alive:
            what = f"was not ready after {timeout:.0f} s" if alive else "has ended"
            raise StartFailedError(f"{name} {what}; the end of {self.log(name)}:\n{self.tail(name)}")

    def tail(self, name: str, lines: int = 25) -> str:
        try:
            with self.log(name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
                # What an earlier run said would only mislead.
                text = file.read().decode(errors="replace").rpartition(_START_MARK)[2]
                return "\n".join(text.splitlines()[-lines:])
        except OSError:
            return "(no log)"

    def _reaped(self, pid: int) -> bool:
        """Reap a child of this very process if it has ended; a daemon mostly outlives who started it."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                return False
        self._children.discard(pid)
        return True


def find(matches: Callable[[list[str]], bool]) -> list[int]:
    """Pids of running processes whose command line matches."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if start_time(pid) and (argv := command_line(pid)) and matches(argv)]


def end(pids: Iterable[int], *, timeout: float = 10.0) -> None:
    """SIGKILL processes that the caller knows to be ours, and wait until they are gone."""
    known = {pid: start_time(pid) for pid in pids}
    for pid in known:
        _signal(pid, signal.SIGKILL)
    wait(lambda: all(start_time(pid) != started for pid, started in known.items() if started), timeout)


def wait(condition: Callable[[], bool], timeout: float, *, interval: float = 0.1) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval)
    return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
