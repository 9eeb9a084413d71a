"""For how long each engine's loads have been looping, and its saves have been refused.

Counters are since the engine's start; what counts is how they move from look to look. A time in which no save was tried
changes nothing: an idle engine is as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvcachepool.facts import EngineFacts, EngineTrend, PodFacts, StoreOperation

_LOOPING_KEYS: Final = 5.0
"""Failed keys a second from which on loads may be looping; seen were about 90 retries a second of a whole prefix."""
_LOOP_PAUSE_SECONDS: Final = 30.0
"""How long nothing may be seen of a loop before it is over: other prompts, such as a probe's, hide it for a while."""
_FEWEST_TOKENS_A_BLOCK: Final = 16
_NONE: Final = StoreOperation()


@dataclass(slots=True)
class _Engine:
    time: float
    facts: EngineFacts
    looping_since: float | None = None
    looping_seen: float = 0.0
    looped_keys: float = 0.0
    refused_since: float | None = None
    refused_keys: float = 0.0


@dataclass(slots=True)
class EngineHistory:
    """Of all engines of one pool, by uid."""

    _engines: dict[str, _Engine] = field(default_factory=dict)

    def look(
        self, pods: Mapping[str, PodFacts], engines: Mapping[str, EngineFacts], now: float
    ) -> Mapping[str, EngineTrend]:
        """Takes in one pass's readings; both go by pod name."""
        kept = {}
        for name, facts in engines.items():
            pod = pods[name]
            before = self._engines.get(pod.uid)
            if not facts.reachable or facts.operations is None:
                if before is not None:
                    kept[pod.uid] = before
                continue
            kept[pod.uid] = _next(before, facts, now)
        self._engines = kept
        return {
            name: EngineTrend(
                looping_seconds=_since(found.looping_since, found.looping_seen),
                looped_keys=found.looped_keys,
                refused_seconds=_since(found.refused_since, now),
                refused_keys=found.refused_keys,
            )
            for name in engines
            if (found := kept.get(pods[name].uid)) is not None
        }


def _since(time: float | None, now: float) -> int:
    return 0 if time is None else int(now - time)


def _next(before: _Engine | None, facts: EngineFacts, now: float) -> _Engine:
    after = _Engine(now, facts)
    if before is None or before.facts.started != facts.started or now <= before.time:
        return after
    failed = _delta(before.facts, facts, "load_get", "failed_keys")
    tokens = sum((facts.tokens or {}).values()) - sum((before.facts.tokens or {}).values())
    fast = failed >= _LOOPING_KEYS * (now - before.time)
    # each block that fails is computed once; what fails more often than that is asked for again and again
    if failed > 0 and fast and failed * _FEWEST_TOKENS_A_BLOCK > 10 * max(tokens, 0.0):
        after.looping_since = before.time if before.looping_since is None else before.looping_since
        after.looping_seen, after.looped_keys = now, before.looped_keys + failed
    elif now - before.looping_seen <= _LOOP_PAUSE_SECONDS:
        after.looping_since, after.looping_seen = before.looping_since, before.looping_seen
        after.looped_keys = before.looped_keys
    refused = _delta(before.facts, facts, "save_put", "failed_keys")
    tried = max(_delta(before.facts, facts, "save_put", "keys"), refused)
    if refused > 0 and refused >= tried:
        after.refused_since = before.time if before.refused_since is None else before.refused_since
        after.refused_keys = before.refused_keys + refused
    elif tried == 0:
        after.refused_since, after.refused_keys = before.refused_since, before.refused_keys
    return after


def _delta(before: EngineFacts, after: EngineFacts, operation: str, counter: str) -> float:
    """0 where a counter is absent or began anew."""
    first, last = ((facts.operations or {}).get(operation, _NONE) for facts in (before, after))
    return max(0.0, float(getattr(last, counter) - getattr(first, counter)))
