"""What a plan is. Kept apart from its making, so that `status` need not import the renderers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvcachepool.findings import Finding
from kvcachepool.hardware.match import HardwareMatch
from kvcachepool.membership import Member
from kvcachepool.schema.cache_schema import CacheSchema


@dataclass(frozen=True, slots=True)
class MasterRestart:
    """A restart of the master that waits for the user's approval."""

    approval: str
    """What the annotation must say; it fits this one restart and no later one."""
    differences: tuple[str, ...] = ()
    """What of the master's pod would change, such as `--client_ttl: 10 → 20`."""
    clients: bool = False
    """Whether pods that talk to it must change together with it: it gets another image, and so perhaps another version,
    or is found in another way."""
    evicted_from: str = ""
    """The cordoned node that the master's pod must not leave before; empty: the spec asks for the restart."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Objects to apply now, and why others wait."""

    schema: CacheSchema | None
    """None when the spec cannot be understood."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """In the order to apply them."""
    prune: tuple[tuple[str, str], ...] = ()
    """(kind, name) of children of ours that are no longer wanted."""
    findings: tuple[Finding, ...] = ()
    """Why nothing is applied: the user must act. Objects are empty then."""
    waiting: Finding | None = None
    """Why engines are not in `objects` yet (WaitingForMaster), or why they stay as they are (WaitingForNodes)."""
    hardware: HardwareMatch | None = None
    """Which nodes fit; None when nothing is applied."""
    held: MasterRestart | None = None
    """A restart of the master that waits; whatever must not happen without it waits, too."""
    steps: tuple[str, ...] = ()
    """Why the next member with a segment is not replaced or taken away yet."""
    evict: tuple[tuple[str, str], ...] = ()
    """(name, uid) of engines to evict, so that they start anew."""
    outdated: tuple[str, ...] = ()
    """Components that keep the template of an older operator."""
    members: tuple[Member, ...] = ()
    """Users' own pods, compared with the schema."""
    routed: frozenset[str] = frozenset()
    """Uids of members that get traffic from the pool's Service."""
    expected_segments: int = 0
    """Segments the master should list once every member is up; 0 without a shared store."""
    segment_bytes: int = 0
    """Segment size after alignment; 0 without a shared store."""
    expected_engine_settings: Mapping[str, str] = field(default_factory=dict)
    """Labels of `vllm:cache_config_info` that must read so in every engine."""
