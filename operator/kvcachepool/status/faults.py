"""What is wrong with a pod, whatever its component. Each component gives these faults its own reasons."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from kvcachepool.facts import ContainerFacts, PodFacts
from kvcachepool.observe.logs import actionable_line
from kvcachepool.status.text import listing, quote, sentence, step

Kind = Literal["Unschedulable", "NotStartable", "OOMKilled", "StartupTimeout", "CrashLoop"]

_PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
_NOT_STARTABLE: Final = frozenset(
    {
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerError",
        "CreateContainerConfigError",
        "RunContainerError",
    }
)
"""The kubelet's reasons of a container that waits because it cannot be started (k8s.io/kubernetes pkg/kubelet)."""
_EXIT_NOT_EXECUTABLE: Final = 126
_EXIT_NOT_FOUND: Final = 127
"""Also of the dynamic loader when a shared library is missing."""
_EXIT_START_ERROR: Final = 128
"""The runtime could not start the program."""
_EXIT_ON_SIGNAL: Final = frozenset({0, 137, 143})
"""After SIGKILL, after SIGTERM, and of a server that ends cleanly on SIGTERM."""
_LOOP: Final = 2
"""Restarts from which on a container that is not ready counts as looping."""


@dataclass(frozen=True, slots=True)
class Startup:
    """How long a pod may take from start to readiness."""

    now: datetime
    seconds: int
    grace_seconds: int
    """How much longer the container may last after it is told to end."""
    field: str
    """Where the time is set."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault of one or more pods; the detail is the first pod's."""

    kind: Kind
    pods: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        noun = "Pod" if len(self.pods) == 1 else "Pods"
        return f"{noun} {listing(self.pods)}: {self.detail}"


def find_fault(pods: Iterable[PodFacts], startup: Startup | None = None) -> Fault | None:
    """The gravest kind of fault among the pods that are not ready."""
    waiting = sorted((p for p in pods if not p.ready), key=lambda p: p.name)
    for kind, look in _looks(startup):
        found = [(p.name, detail) for p in waiting if (detail := look(p))]
        if found:
            return Fault(kind, tuple(name for name, _ in found), found[0][1])
    return None


def crash_line(pod: PodFacts, container: ContainerFacts) -> str:
    """The line of its output that tells what to do; "" when there is none yet."""
    return quote(pod.log_line) if pod.log_line else quote(actionable_line(container.exit_message))


def _looks(startup: Startup | None) -> Sequence[tuple[Kind, Callable[[PodFacts], str]]]:
    return (
        ("Unschedulable", _unschedulable),
        ("NotStartable", _not_startable),
        ("OOMKilled", _oom_killed),
        ("StartupTimeout", lambda pod: _startup_timeout(pod, startup) if startup else ""),
        ("CrashLoop", _crash_loop),
    )


def _unschedulable(pod: PodFacts) -> str:
    if not pod.unschedulable:
        return ""
    told = quote(pod.unschedulable.partition(" preemption:")[0]).rstrip(".")
    hints = [hint for words, hint in _SCHEDULER_HINTS if words in told]
    return " ".join([sentence(f'the scheduler says "{told}"'), *hints])


_SCHEDULER_HINTS: Final = (
    ("untolerated taint", "To run on tainted nodes, add the toleration to spec.scheduling.tolerations."),
    ("node affinity/selector", "Check nodeSelector and affinity in spec.scheduling against the nodes' labels."),
    ("Insufficient", "Lower the requests or add nodes that have what is insufficient."),
)


def _not_startable(pod: PodFacts) -> str:
    for container in pod.containers:
        where = f"container {container.name}, image {container.image}"
        if container.waiting_reason in _PULL:
            return _told(f"{where}: the image cannot be pulled", quote(container.waiting_message))
        if container.waiting_reason in _NOT_STARTABLE:
            return _told(f"{where}: {container.waiting_reason}", quote(container.waiting_message))
        if container.exit_code in {_EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND, _EXIT_START_ERROR} and not container.ready:
            code = container.exit_code
            return _told(f"{where}: the program cannot be loaded (exit code {code})", crash_line(pod, container))
    return ""


def _told(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what


def _oom_killed(pod: PodFacts) -> str:
    for container in pod.containers:
        if container.exit_reason == "OOMKilled" and not container.ready:
            return f"container {container.name} was OOMKilled"
    return ""


def _startup_timeout(pod: PodFacts, startup: Startup) -> str:
    main = pod.main
    if main is None:
        return ""
    allowed = timedelta(seconds=startup.seconds)
    started = _time(pod.started)
    overdue = main.running and started is not None and startup.now - started > allowed
    if not overdue and not _stopped_while_starting(main, startup):
        return ""
    return (
        f"container {main.name} was not ready {startup.seconds} s after its start and is restarted. "
        f"Raise {startup.field} if it needs longer"
    )


def _stopped_while_starting(main: ContainerFacts, startup: Startup) -> bool:
    """Whether its last run ended as one does that the startup probe gave up. A run that ended at another age did
    something else."""
    ran = main.ran_seconds
    if ran is None or main.exit_code not in _EXIT_ON_SIGNAL:
        return False
    return startup.seconds <= ran <= startup.seconds + startup.grace_seconds


def _crash_loop(pod: PodFacts) -> str:
    for container in pod.containers:
        looping = container.restarts >= _LOOP or container.waiting_reason == "CrashLoopBackOff"
        if container.ready or not looping or (container.init and container.exit_code == 0):
            continue
        code = "unknown" if container.exit_code is None else str(container.exit_code)
        cause = f" ({container.exit_reason})" if container.exit_reason else ""
        times = step(container.restarts)
        again = f", restarted at least {times} times" if times > 1 else ""
        line = crash_line(pod, container)
        if line:
            tail = f"First error: {line}"
        elif container.exit_code == 0:
            tail = "A server never ends by itself: look into the log for what made it end"
        else:
            tail = f"Its log: kubectl logs --previous {pod.name} -c {container.name}"
        return f"container {container.name} ends again and again, exit code {code}{cause}{again}. {tail}"
    return ""


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None
