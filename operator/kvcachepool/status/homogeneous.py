"""SchemaHomogeneous: every member has the pool's schema, declared and observed.

A webhook sees neither the defaults of an image nor what is edited later, so this repeats every check on what runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.facts import ContainerFacts, PodFacts
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.observed import differences
from kvcachepool.status.context import Context
from kvcachepool.status.text import listing, plural
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_say = speaker("SchemaHomogeneous")

_SEED: Final = "PYTHONHASHSEED"
_AGREE: Final = (
    "block_size",
    "cache_dtype",
    "effective_attention_block_size",
    "enable_prefix_caching",
    "hash_block_size",
    "kv_cache_dtype_skip_layers",
    "kv_cache_layout",
    "mamba_block_size",
    "mamba_cache_dtype",
    "mamba_cache_mode",
    "mamba_ssm_cache_dtype",
    "prefix_caching_hash_algo",
    "prefix_match_unit",
    "sliding_window",
)
"""Labels of `vllm:cache_config_info` (vLLM 0.32, 0.33) that change a key or a byte of the cache. Others, such as the
number of blocks, may differ between engines."""


def _members(context: Context) -> tuple[PodFacts, ...]:
    """Pods that hash or store: engines, store pods and the user's own. The master does neither."""
    return tuple(p for c in (constants.ENGINE, constants.STORE, "") for p in context.members(c))


def _leaving(context: Context, pod: PodFacts) -> bool:
    """Whether a pod that differs is about to be replaced by its Deployment. Store pods carry no digest: the schema
    changes none of their settings but the seed."""
    if not pod.owned or (pod.digest == context.digest and pod.component != constants.STORE):
        return False
    # The status still has the former digest in the pass that applies a new one.
    former = pod.digest not in {"", context.digest} and pod.digest == context.pool.status.schema_.digest
    return former or not context.settled(pod.component)


def _no_schema(context: Context) -> Verdict | None:
    schema = context.plan.schema
    if schema is not None and schema.digest == context.digest:
        return None
    return _say("NotAccepted", "Running members follow the former spec; they are compared once the spec is accepted.")


def _mismatch(context: Context) -> Verdict | None:
    staying = [pod for pod in _members(context) if not _leaving(context, pod)]
    found = [f"pod {pod.name}: {text}" for pod in staying for text in _differences(context, pod)]
    found += _disagreements(context, staying)
    if not found:
        return None
    more = f" And {plural(len(found) - 2, 'more difference')}." if len(found) > 2 else ""
    return _say(
        "SchemaMismatch", f"{'; '.join(found[:2])}.{more} Give the pod the pool's value, or take it out of the pool."
    )


def _differences(context: Context, pod: PodFacts) -> Iterator[str]:
    schema, main = context.plan.schema, pod.main
    assert schema is not None
    if pod.digest != schema.digest and (pod.digest or pod.component != constants.STORE):
        yield f"label {constants.LABEL_SCHEMA} is {pod.digest or 'unset'}, the pool has {schema.digest}"
    if main is not None:
        yield from _declared(schema, pod, main)
    engine = context.engine(pod)
    if engine is not None and engine.cache_config is not None:
        yield from _reported(context.plan.expected_engine_settings, engine.cache_config)


def _declared(schema: CacheSchema, pod: PodFacts, main: ContainerFacts) -> Iterator[str]:
    for difference in differences(schema, main, hashes_only=pod.component == constants.STORE):
        if difference.field == "hashSeed" and _SEED in main.env_refs:
            yield f"{_SEED} comes from a reference, the pool needs it as the literal value {difference.expected}"
        else:
            yield f"container {main.name}: {difference}"


def _reported(expected: Mapping[str, str], reported: Mapping[str, str]) -> Iterator[str]:
    """Labels that a version of the engine does not have say nothing."""
    for label, value in sorted(expected.items()):
        actual = reported.get(label, value)
        if _canonical(label, actual) != _canonical(label, value):
            yield f"the engine reports {label} {actual}, the pool has {value}"


def _canonical(label: str, value: str) -> str | int | None:
    return CacheSchema.of({"kvCacheDtype": value}).get("kvCacheDtype") if label == "cache_dtype" else value


def _disagreements(context: Context, pods: Sequence[PodFacts]) -> Iterator[str]:
    """What engines report differently although the pool leaves it to them."""
    configs = [
        (pod.name, engine.cache_config)
        for pod in pods
        if (engine := context.engine(pod)) is not None and engine.cache_config is not None
    ]
    for label in _AGREE:
        values = [(name, config[label]) for name, config in configs if label in config]
        if label in context.plan.expected_engine_settings or not values:
            continue
        first, other = values[0], next((v for v in values if v[1] != values[0][1]), None)
        if other is not None:
            yield f"engines report {label} differently: {other[1]} in pod {other[0]}, {first[1]} in pod {first[0]}"


def _rolling_out(context: Context) -> Verdict | None:
    leaving = [p.name for p in _members(context) if _leaving(context, p) and any(_differences(context, p))]
    if not leaving:
        return None
    return _say("RollingOut", f"{plural(len(leaving), 'pod')} of a former schema will be replaced: {listing(leaving)}.")


def _no_members(context: Context) -> Verdict | None:
    if context.ready_engines:
        return None
    return _say("NoMembers", "No engine is ready, so that nothing can be compared.")


def _unreachable(context: Context) -> Verdict | None:
    silent = []
    for pod in context.ready_engines:
        engine = context.engine(pod)
        if engine is None or engine.cache_config is None:
            silent.append(pod.name)
    if not silent:
        return None
    facts = context.observed.engines.get(sorted(silent)[0])
    why = facts.error if facts is not None and facts.error else "it has not told its cache settings"
    port = constants.ENGINE_PORT
    return _say(
        "EnginesUnreachable",
        f"What is declared agrees, but the cache settings of {listing(silent)} could not be read on port {port} "
        f"({why}).",
    )


def _all_alike(context: Context) -> Verdict:
    members = _members(context)
    return _say("AllAlike", f"{plural(len(members), 'member')} with schema {context.digest}, declared and observed.")


CHECKS: Sequence[Check] = (
    not_accepted(_say, constants.ENGINE, constants.STORE, ""),
    _no_schema,
    _mismatch,
    _rolling_out,
    _no_members,
    _unreachable,
    _all_alike,
)
