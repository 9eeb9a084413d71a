"""CacheEffective: whether users' prompts hit the cache, from windowed counters.

The connector's own hit counter rises for failed loads, too; the shares here come from prompt tokens by source, and
failing loads are an alarm of their own.
"""

from collections.abc import Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.status.context import Context
from kvcachepool.status.text import listing, percent, quote, roughly, sentence, window
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker
from kvcachepool.stranded import looping, stranded

_say = speaker("CacheEffective")

_FAILED_LOADS: Final = 0.01
"""Share of failed keys that is an alarm. A key can be evicted between lookup and load: single ones are no fault."""
_FAILED_SAVES: Final = 0.05
"""As above. A save may lose against another engine that writes the same key."""
_ENOUGH_TOKENS: Final = 10_000
"""Prompt tokens below which missing hits prove nothing: a pool's first prompts cannot hit."""
_JUDGED: Final = {"LoadsFailing", "SavesFailing", "WritesNotArriving", "ZeroHits", "HitsObserved"}
"""Reasons that stand on counters in the window."""


def _stranded(context: Context) -> Verdict | None:
    found = stranded(context.pool, context.observed)
    if not found:
        return None
    names, evidence = listing(found), found[min(found)]
    return _say("EnginesStranded", f"Engines {names} have lost the store: {evidence}. {_restart(context)}")


def _looping(context: Context) -> Verdict | None:
    found = looping(context.pool, context.observed)
    if not found:
        return None
    return _say(
        "LoadsLooping",
        f"Loads of {listing(found)} fail without a pause, {roughly(sum(found.values()))} blocks so far, many times "
        f"more than are computed: a request asks for the same blocks again and again. {_restart(context)}",
    )


def _restart(context: Context) -> str:
    if context.pool.spec.engines.restart_when_stranded == "OneAtATime":
        seconds, refused = context.pool.spec.engines.startup_seconds, context.observed.eviction_refused
        if refused:
            return f"It cannot be evicted: {sentence(quote(refused))}"
        return f"Engines that have run for {seconds} s (spec.engines.startupSeconds) are restarted one at a time."
    return "A restart cures it: spec.engines.restartWhenStranded is Never."


def _loads_failing(context: Context) -> Verdict | None:
    rates = context.observed.rates
    share = _share(rates.load_failed_keys, rates.load_keys)
    if share is None or share < _FAILED_LOADS:
        return None
    hits = f" Hits are counted all the same: {percent(rates.pool)} of the prompt tokens." if rates.pool else ""
    return _say(
        "LoadsFailing",
        f"{percent(share)} of the blocks that engines tried to load failed {window(rates.window_seconds)} "
        f"({roughly(rates.load_failed_keys or 0)} blocks); they were computed anew, after a wait.{hits}",
    )


def _saves_failing(context: Context) -> Verdict | None:
    rates = context.observed.rates
    share = _share(rates.save_failed_keys, rates.saved_keys)
    if share is None or share < _FAILED_SAVES:
        return None
    return _say(
        "SavesFailing",
        f"{percent(share)} of the blocks that engines tried to save failed {window(rates.window_seconds)} "
        f"({roughly(rates.save_failed_keys or 0)} blocks); later prompts will not find them.",
    )


def _share(failed: float | None, keys: float | None) -> float | None:
    """Failed keys are counted among the keys; None when nothing was tried or measured."""
    if not failed or keys is None:
        return None
    return failed / max(keys, failed)


def _unavailable(context: Context) -> Verdict | None:
    rates = context.observed.rates
    if rates.tokens is not None and (rates.pool is not None or not rates.tokens):
        return None
    if rates.tokens is None and context.rates_begin:
        return None
    failed = sorted((name, facts.error) for name, facts in context.observed.engines.items() if facts.error)
    why = f" First: {failed[0][0]}: {failed[0][1]}." if failed else ""
    return _say(
        "MetricsUnavailable", f"No engine has told its prompt tokens by source (port {constants.ENGINE_PORT}).{why}"
    )


def _judged_before(context: Context) -> Verdict | None:
    """What stands until a new leader of the operator has seen enough, at most one window long."""
    before = context.pool.status.condition("CacheEffective")
    if before is None or before.reason not in _JUDGED or not context.rates_begin:
        return None
    return _say(before.reason, before.message)


def _no_traffic(context: Context) -> Verdict | None:
    rates = context.observed.rates
    if rates.tokens and (rates.pool or rates.tokens >= _ENOUGH_TOKENS):
        return None
    if (before := _judged_before(context)) is not None:
        return before
    if not rates.tokens:
        return _say("NoTraffic", "No prompt tokens of users were seen; the probe's own do not count.")
    return _say(
        "NoTraffic", f"Too few prompt tokens of users to judge; from {_ENOUGH_TOKENS} in the window on it is judged."
    )


def _writes_not_arriving(context: Context) -> Verdict | None:
    rates, master = context.observed.rates, context.observed.master
    if rates.pool or not rates.external_queries or rates.saved_keys is None:
        return None
    when = window(rates.window_seconds)
    if rates.saved_keys == 0:
        block = context.pool.spec.schema_.block_size
        return _say(
            "WritesNotArriving",
            f"Engines looked up {roughly(rates.external_queries)} prompt tokens and saved 0 blocks {when}. Unless all "
            f"prompts are shorter than one block ({block} tokens), compare the Mooncake versions of engines, master "
            "and store pods.",
        )
    if master is not None and master.put_requests == 0 and not context.observed.store_trend.master_restarted:
        return _say(
            "WritesNotArriving",
            f"Engines saved {roughly(rates.saved_keys)} blocks {when}, but the master has seen 0 puts since its start: "
            "compare the Mooncake versions of engines, master and store pods.",
        )
    return None


def _zero_hits(context: Context) -> Verdict | None:
    rates = context.observed.rates
    if rates.pool:
        return None
    local = f"; {percent(rates.local)} came from the engines' own caches" if rates.local else ""
    return _say(
        "ZeroHits",
        f"0 % of {roughly(rates.tokens or 0)} prompt tokens came from the pool {window(rates.window_seconds)}{local}. "
        "ReuseVerified tells whether the pool works; if it is True, prompts share no prefix across engines.",
    )


def _hits(context: Context) -> Verdict:
    rates = context.observed.rates
    local = f", {percent(rates.local)} from the engines' own caches" if rates.local is not None else ""
    return _say("HitsObserved", f"{percent(rates.pool or 0)} of the prompt tokens came from the pool{local}.")


CHECKS: Sequence[Check] = (
    not_accepted(_say, constants.ENGINE),
    _stranded,
    _looping,
    _loads_failing,
    _saves_failing,
    _unavailable,
    _no_traffic,
    _writes_not_arriving,
    _zero_hits,
    _hits,
)
