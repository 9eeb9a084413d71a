"""Which members came and went by their pods, against what the master lists."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvcachepool.facts import MasterFacts, PodFacts


@dataclass(slots=True)
class Presence:
    """Members that lend memory, from look to look. A new operator begins with nobody gone."""

    _members: dict[str, str] = field(default_factory=dict)
    _departed: dict[str, str] = field(default_factory=dict)
    _absent: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By uid: name, and since when."""

    def look(
        self, owners: Iterable[PodFacts], master: MasterFacts | None, now: float
    ) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """(`Observed.departed`, `Observed.absent`). `owners` are all pods that have, or will have, a segment."""
        present = [pod for pod in owners if pod.ip and not pod.ended]
        hosts = {pod.ip: pod.name for pod in present}
        self._departed |= {ip: name for ip, name in self._members.items() if ip not in hosts}
        self._members = hosts
        listed = _hosts(master)
        self._departed = {
            ip: name for ip, name in self._departed.items() if ip not in hosts and (listed is None or ip in listed)
        }
        if listed is not None:
            away = {pod.uid: pod.name for pod in present if pod.ready and not pod.deleting and pod.ip not in listed}
            self._absent = {uid: self._absent.get(uid, (name, now)) for uid, name in away.items()}
        return dict(self._departed), {name: int(now - since) for name, since in self._absent.values()}


def _hosts(master: MasterFacts | None) -> frozenset[str] | None:
    """None: the master did not list its segments."""
    if master is None or not master.reachable or master.segments is None:
        return None
    return frozenset(segment.host for segment in master.segments)
