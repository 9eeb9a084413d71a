"""SchemaHomogeneous: every member has the pool's schema, declared and observed.

A webhook sees neither the defaults of an image nor what is edited later, so this repeats every check on what runs.
"""

from collections.abc import Iterator, Sequence

from kvcachepool import constants
from kvcachepool.facts import PodFacts
from kvcachepool.membership import AGREE, declared, labels, reported
from kvcachepool.status.context import Context
from kvcachepool.status.text import capital, listing, plural
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_say = speaker("SchemaHomogeneous")


def _own(context: Context) -> tuple[PodFacts, ...]:
    """The operator's engines. Master and store hash nothing: to them a key is a name."""
    return tuple(context.members(constants.ENGINE))


def _leaving(context: Context, pod: PodFacts) -> bool:
    """Whether a pod that differs is about to be replaced by its Deployment."""
    if not pod.owned or pod.digest == context.digest:
        return False
    # The status still has the former digest in the pass that applies a new one.
    former = bool(pod.digest) and pod.digest == context.pool.status.schema_.digest
    return former or not context.settled(pod.component)


def _no_schema(context: Context) -> Verdict | None:
    schema = context.plan.schema
    if schema is not None and schema.digest == context.digest:
        return None
    return _say("NotAccepted", "Running members follow the former spec; they are compared once the spec is accepted.")


def _mismatch(context: Context) -> Verdict | None:
    staying = [pod for pod in _own(context) if not _leaving(context, pod)]
    found = [f"pod {pod.name}: {text}" for pod in staying for text in _differences(context, pod)]
    members = [m for m in context.plan.members if m.problems]
    found += [f"pod {m.pod.name}: {text}" for m in members for text in m.problems]
    alike = [m.pod for m in context.plan.members if not m.problems]
    found += _disagreements(context, [*staying, *alike])
    if not found:
        return None
    more = f" And {plural(len(found) - 2, 'more difference')}." if len(found) > 2 else ""
    apart, selected = [m.pod.name for m in members if not m.selected], [m.pod.name for m in members if m.selected]
    traffic = f" No traffic or probe goes to {listing(apart)}." if apart else ""
    if selected:
        traffic += f" Requests reach {listing(selected)} by the label {constants.LABEL_COMPONENT}: remove it."
    return _say(
        "SchemaMismatch",
        f"{'; '.join(found[:2])}.{more}{traffic} Give the pod the pool's value, or take it out of the pool.",
    )


def _differences(context: Context, pod: PodFacts) -> Iterator[str]:
    schema, main = context.plan.schema, pod.main
    assert schema is not None
    yield from labels(schema, pod)
    if main is not None:
        yield from declared(schema, pod, main)
    engine = context.engine(pod)
    if engine is not None and engine.cache_config is not None:
        yield from reported(context.plan.expected_engine_settings, engine.cache_config)


def _disagreements(context: Context, pods: Sequence[PodFacts]) -> Iterator[str]:
    """What engines report differently although the pool leaves it to them."""
    configs = [
        (pod.name, engine.cache_config)
        for pod in pods
        if (engine := context.engine(pod)) is not None and engine.cache_config is not None
    ]
    for label in AGREE:
        values = [(name, config[label]) for name, config in configs if label in config]
        if label in context.plan.expected_engine_settings or not values:
            continue
        first, other = values[0], next((v for v in values if v[1] != values[0][1]), None)
        if other is not None:
            yield f"engines report {label} differently: {other[1]} in pod {other[0]}, {first[1]} in pod {first[0]}"


def _rolling_out(context: Context) -> Verdict | None:
    leaving = [p.name for p in _own(context) if _leaving(context, p) and any(_differences(context, p))]
    if not leaving:
        return None
    return _say("RollingOut", f"{plural(len(leaving), 'pod')} of a former schema will be replaced: {listing(leaving)}.")


def _no_members(context: Context) -> Verdict | None:
    if context.ready_engines:
        return None
    return _say("NoMembers", "No engine is ready, so that nothing can be compared.")


def _unreachable(context: Context) -> Verdict | None:
    silent = {}
    for pod in context.ready_engines:
        engine = context.engine(pod)
        if engine is None or engine.cache_config is None:
            silent[pod.name] = pod.port or constants.ENGINE_PORT
    if not silent:
        return None
    name, port = min(silent.items())
    facts = context.observed.engines.get(name)
    why = facts.error if facts is not None and facts.error else "it has not told its cache settings"
    return _say(
        "EnginesUnreachable",
        f"What is declared agrees, but the cache settings of {listing(silent)} could not be read on port {port} "
        f"({why}).",
    )


def _not_readable(context: Context) -> Verdict | None:
    found = [f"pod {m.pod.name}: {text}" for m in context.plan.members for text in m.unknown]
    if not found:
        return None
    more = f" And {len(found) - 2} more." if len(found) > 2 else ""
    return _say("NotReadable", f"Nothing differs as far as it can be seen, but {'; '.join(found[:2])}.{more}")


def _all_alike(context: Context) -> Verdict:
    count = len(_own(context)) + len(context.plan.members)
    idle = [f"pod {m.pod.name} gets no traffic: {m.obstacle}" for m in context.plan.members if m.obstacle]
    note = f" {capital(idle[0])}." if idle else ""
    return _say("AllAlike", f"{plural(count, 'engine')} with schema {context.digest}, declared and observed.{note}")


CHECKS: Sequence[Check] = (
    not_accepted(_say, constants.ENGINE, ""),
    _no_schema,
    _mismatch,
    _rolling_out,
    _no_members,
    _unreachable,
    _not_readable,
    _all_alike,
)
