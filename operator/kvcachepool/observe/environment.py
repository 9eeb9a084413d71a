"""Environment of users' pods that comes from ConfigMaps, resolved where it carries a schema field.

A pod shows only the reference. Of a ConfigMap just the keys in question are kept, and it is read again once a minute; a
process has what stood there when it started, so an edit afterwards shows here before it takes effect. Of a Secret only
the names of its keys are looked at: a variable that comes from one is unknown, and said to be.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from kvcachepool.facts import ContainerFacts, EnvSource, PodFacts
from kvcachepool.observe.memory import PoolMemory, SourceLook
from kvcachepool.schema.flags import REFUSED_ENV, SCHEMA_ENV

_LOG = logging.getLogger(__name__)
VARIABLES: Final = frozenset({*SCHEMA_ENV, *REFUSED_ENV})
"""Variables that carry schema fields, or that no member may set."""
REREAD_SECONDS: Final = 60.0

Read = Mapping[str, str | None] | None
"""Key to value, None in place of a Secret's; None: there is no such object, or it could not be read."""


class SourceReader(Protocol):
    """Reads what environment comes from. May raise."""

    async def keys(self, kind: str, namespace: str, name: str) -> frozenset[str] | None:
        """Names of the keys of a Secret; None when there is no such object."""
        ...

    async def config(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The data of a ConfigMap; None when there is no such object."""
        ...


async def resolved(
    pods: Sequence[PodFacts], namespace: str, reader: SourceReader, memory: PoolMemory, now: float
) -> list[PodFacts]:
    """The pods, with the environment of users' engine containers completed."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        for source in () if pod.owned else _sources(pod.main):
            if _readable(source):
                wanted.setdefault((source.kind, source.name), set()).update(_key(source, v) for v in _set_by(source))
    memory.sources = {one: seen for one, seen in memory.sources.items() if wanted.get(one, set()) == seen.keys}
    due = [
        one for one in sorted(wanted) if one not in memory.sources or now - memory.sources[one].when >= REREAD_SECONDS
    ]
    answers = await asyncio.gather(*(_read(reader, kind, namespace, name) for kind, name in due))
    for one, answer in zip(due, answers, strict=True):
        kept = None if answer is None else {key: answer[key] for key in wanted[one] if key in answer}
        memory.sources[one] = SourceLook(now, wanted[one], kept)
    known = {one: look.values for one, look in memory.sources.items()}
    return [pod if pod.owned else _with_environment(pod, known) for pod in pods]


def _readable(source: EnvSource) -> bool:
    """A variable that is one key of a Secret is unknown whatever is in there."""
    return source.kind == "ConfigMap" or (source.kind == "Secret" and not source.variable)


def _set_by(source: EnvSource) -> Iterable[str]:
    """Variables in question that the source may set."""
    if source.variable:
        return (source.variable,)
    return (variable for variable in sorted(VARIABLES) if variable.startswith(source.prefix))


def _key(source: EnvSource, variable: str) -> str:
    return source.key if source.variable else variable.removeprefix(source.prefix)


def _sources(main: ContainerFacts | None) -> Iterable[EnvSource]:
    """References that could set one of the variables in question."""
    return (s for s in main.env_sources if not s.variable or s.variable in VARIABLES) if main is not None else ()


async def _read(reader: SourceReader, kind: str, namespace: str, name: str) -> Read:
    try:
        if kind == "Secret":
            keys = await reader.keys(kind, namespace, name)
            return None if keys is None else dict.fromkeys(keys)
        data = await reader.config(namespace, name)
    except Exception as error:  # any failure of the API server: what cannot be read is unknown
        _LOG.info("cannot read %s %s/%s: %s", kind, namespace, name, error)
        return None
    return data


def _with_environment(pod: PodFacts, known: Mapping[tuple[str, str], Read]) -> PodFacts:
    main = pod.main
    if main is None or not main.env_sources:
        return pod
    values: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for source in _sources(main):
        for variable in _set_by(source):
            found, value = _look(source, variable, known)
            if not found:
                continue
            values.pop(variable, None)
            unreadable.pop(variable, None)
            if value is None:
                unreadable[variable] = str(source)
            else:
                values[variable] = value
    literal = main.env
    complete = replace(
        main,
        env={**values, **literal},
        unreadable={name: source for name, source in unreadable.items() if name not in literal},
    )
    return replace(pod, containers=tuple(complete if c is main else c for c in pod.containers))


def _look(source: EnvSource, variable: str, known: Mapping[tuple[str, str], Read]) -> tuple[bool, str | None]:
    """(whether the source sets the variable, its value or None where that is not known)."""
    key = _key(source, variable)
    data = known.get((source.kind, source.name))
    if data is None:  # a whole object that is absent sets nothing; one variable's source is at least named
        return bool(source.variable), None
    return key in data, data.get(key)
