"""Whether a running engine has the pool's cache schema: by what its pod declares and the engine itself reports. Pure.

The API server's policy refuses most of this at admission; it sees neither the defaults of an image, nor what a
ConfigMap holds, nor a pod that is older than the policy, so all of it is checked again on what runs.

A *member* is a user's own pod with the pool's label. One that differs gets no traffic from the pool's Service and takes
no part in probes; the pod itself is never touched.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.facts import ContainerFacts, EngineFacts, Observed, PodFacts
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.flags import (
    CONFIG_FLAG,
    HIDDEN,
    OFF,
    REFUSED_ENV,
    SCHEMA_ENV,
    abbreviated,
    hidden,
    refusal,
    schema_flag,
    tokens,
)
from kvcachepool.schema.member import (
    NO_CONNECTOR,
    PREFIXED_CONNECTORS,
    UNSEEN_MODEL,
    model_argument,
    model_unseen,
    named_models,
)
from kvcachepool.schema.observed import differences

AGREE: Final = (
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

_BEHIND_SERVICES: Final = (constants.ENGINE, constants.MASTER)
"""Components that a Service of the pool selects by label."""
_SEED: Final = "PYTHONHASHSEED"


@dataclass(frozen=True, slots=True)
class Member:
    """A user's own pod that carries the pool's label."""

    pod: PodFacts
    problems: tuple[str, ...] = ()
    """What differs; each names the field and both values."""
    unknown: tuple[str, ...] = ()
    """What cannot be told, and why."""
    reported: bool = False
    """Whether its engine has told its own settings."""
    obstacle: str = ""
    """Why it gets no traffic although it does not differ."""

    @property
    def selected(self) -> bool:
        """Whether a Service of the pool takes it in by its label, so that it gets requests although it differs."""
        return self.pod.labels.get(constants.LABEL_COMPONENT) in _BEHIND_SERVICES

    @property
    def shares(self) -> bool:
        """Whether it serves and may share the pool's cache, as far as is known."""
        return self.pod.ready and not self.problems


@dataclass(frozen=True, slots=True)
class Expected:
    """What members are compared with."""

    schema: CacheSchema
    settings: Mapping[str, str]
    """Labels of `vllm:cache_config_info` that must read so."""
    served_name: str
    """Name of the model in requests."""


def members(expected: Expected, observed: Observed) -> tuple[Member, ...]:
    """Users' own pods, by name."""
    found = (p for p in observed.pods if not p.owned and not p.component and not p.deleting and not p.ended)
    reference = _reference(expected.schema, observed)
    return tuple(_member(expected, pod, observed.engines.get(pod.name), reference) for pod in sorted(found, key=_name))


def alike(observed: Observed, found: Sequence[Member]) -> Observed:
    """What was observed without the pods of members that differ: those that may be compared with each other."""
    apart = {member.pod.uid for member in found if member.problems}
    return replace(observed, pods=tuple(p for p in observed.pods if p.uid not in apart)) if apart else observed


def _name(pod: PodFacts) -> str:
    return pod.name


def _reference(schema: CacheSchema, observed: Observed) -> tuple[str, Mapping[str, str]]:
    """The operator's own engine that others are compared with, and its resolved settings."""
    own = (p for p in observed.members(constants.ENGINE) if p.owned and p.ready and p.digest == schema.digest)
    for pod in sorted(own, key=_name):
        config = _config(observed.engines.get(pod.name))
        if config is not None:
            return pod.name, config
    return "", {}


def _config(engine: EngineFacts | None) -> Mapping[str, str] | None:
    return engine.cache_config if engine is not None and engine.reachable else None


def _member(
    expected: Expected, pod: PodFacts, engine: EngineFacts | None, reference: tuple[str, Mapping[str, str]]
) -> Member:
    problems = list(labels(expected.schema, pod))
    unknown: list[str] = []
    main, obstacle = pod.main, ""
    component = pod.labels.get(constants.LABEL_COMPONENT, "")
    if component:
        problems.append(f"label {constants.LABEL_COMPONENT} is {component}, expected none on a pod of one's own")
    if component in _BEHIND_SERVICES:
        problems[-1] += ", since a Service of the pool sends requests to any pod with it"
    if main is None or pod.engine_unclear:
        problems.append(
            "none or several of its containers look like an engine, expected one that the annotation "
            f"{constants.ANNOTATION_CONTAINER} names"
        )
    else:
        problems += declared(expected.schema, pod, main)
        problems += _foreign(expected.schema, main)
        unknown += _unreadable(main)
        obstacle = _other_name(main, expected.served_name)
    config = _config(engine)
    if config is not None:
        problems += reported(expected.settings, config)
        problems += _disagrees(expected.settings, config, *reference)
    elif pod.ready:
        why = engine.error if engine is not None and engine.error else "it has not told them"
        unknown.append(f"its cache settings could not be read on port {pod.port or constants.ENGINE_PORT} ({why})")
    return Member(pod, tuple(problems), tuple(unknown), config is not None, obstacle)


def labels(schema: CacheSchema, pod: PodFacts) -> Iterator[str]:
    """The schema label."""
    if pod.digest != schema.digest:
        yield f"label {constants.LABEL_SCHEMA} is {pod.digest or 'unset'}, the pool has {schema.digest}"


def declared(schema: CacheSchema, pod: PodFacts, main: ContainerFacts) -> Iterator[str]:
    """Flags and environment that carry schema fields."""
    hidden = {SCHEMA_ENV[variable] for variable in main.unreadable if variable in SCHEMA_ENV}
    for difference in differences(schema, main):
        if difference.field in hidden:
            continue
        if pod.owned and difference.field == "hashSeed" and _SEED in main.env_refs:
            yield f"{_SEED} comes from a reference, the pool needs it as the literal value {difference.expected}"
        else:
            yield f"container {main.name}: {difference}"


def reported(expected: Mapping[str, str], config: Mapping[str, str]) -> Iterator[str]:
    """What the engine says of itself. Labels that a version of the engine does not have say nothing."""
    for label, value in sorted(expected.items()):
        actual = config.get(label, value)
        if canonical(label, actual) != canonical(label, value):
            yield f"the engine reports {label} {actual}, the pool has {value}"


def canonical(label: str, value: str) -> object:
    """A reported value in the schema's spelling."""
    return CacheSchema.of({"kvCacheDtype": value}).get("kvCacheDtype") if label == "cache_dtype" else value


def _disagrees(
    settings: Mapping[str, str], config: Mapping[str, str], name: str, reference: Mapping[str, str]
) -> Iterator[str]:
    """What the pool leaves to the engine, and this one chose otherwise than the operator's own."""
    for label in AGREE:
        if label in settings or label not in config or label not in reference:
            continue
        if canonical(label, config[label]) != canonical(label, reference[label]):
            yield f"the engine reports {label} {config[label]}, {name} of the pool has {reference[label]}"


def _foreign(schema: CacheSchema, main: ContainerFacts) -> Iterator[str]:
    """What only a pod that the operator did not render can have."""
    line = main.command + main.args
    for name, _ in tokens(line):
        if schema_flag(name) is None and refusal(name):
            yield f"container {main.name}: {name} is set, expected to be left out: {refusal(name)}"
        elif abbreviated(name):
            yield f"container {main.name}: {name} is short for {abbreviated(name)}, expected in full"
    yield from (f"container {main.name}: {word} {HIDDEN}" for word in hidden(line))
    for variable, why in REFUSED_ENV.items():
        if main.env.get(variable, "") not in OFF:
            yield f"container {main.name}: {variable} is {main.env[variable]}, expected to be left out: {why}"
    for model in named_models(line, bare=not main.command):
        if model != schema.get("modelId"):
            yield f"container {main.name}: modelId is {model}, the pool has {schema.get('modelId')}"
    if model_unseen(line, bare=not main.command):
        yield f"container {main.name}: {UNSEEN_MODEL}"
    yield from (f"container {main.name}: {text}" for text in _connector(schema, line))


def _connector(schema: CacheSchema, line: tuple[str, ...]) -> Iterator[str]:
    """The connector, and the digest in front of every key: without it a member reads and writes others' keys."""
    wanted, given = schema.get("connector"), dict(tokens(line)).get(CONFIG_FLAG)
    found = list(_connectors(_json(given)))
    names = sorted({str(connector.get("kv_connector")) for connector in found})
    if wanted == NO_CONNECTOR:
        if names:
            yield f"connector is {', '.join(names)}, the pool has none"
        return
    ours = [connector for connector in found if connector.get("kv_connector") == wanted]
    if not ours:
        yield f"connector is {', '.join(names) or 'unset'}, the pool has {wanted}"
    for connector in ours if wanted in PREFIXED_CONNECTORS else ():
        extra = connector.get("kv_connector_extra_config")
        prefix = extra.get("cache_prefix") if isinstance(extra, dict) else None
        if prefix != schema.digest:
            yield f"cache_prefix is {prefix or 'unset'}, the pool has {schema.digest}"


def _connectors(config: Any) -> Iterator[Mapping[str, Any]]:
    """A configuration and those that a MultiConnector has in it."""
    if not isinstance(config, dict) or "kv_connector" not in config:
        return
    yield config
    extra = config.get("kv_connector_extra_config")
    inner = extra.get("connectors") if isinstance(extra, dict) else None
    for item in inner if isinstance(inner, list) else ():
        yield from _connectors(item)


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def _unreadable(main: ContainerFacts) -> Iterator[str]:
    for variable, source in sorted(main.unreadable.items()):
        yield f"container {main.name}: {variable} comes from {source}, which the operator does not read"


def _other_name(main: ContainerFacts, served_name: str) -> str:
    """Why requests for the pool's model would be refused; empty where the name is not seen."""
    line, flag = main.command + main.args, "--served-model-name"
    names: list[str] = []
    for index, word in enumerate(line):
        name, equals, value = word.replace("_", "-", word.count("_") * (word.startswith("--"))).partition("=")
        if name != flag:
            continue
        following = line[index + 1 :]
        end = next((n for n, w in enumerate(following) if w.startswith("-")), len(following))
        names = [word.partition("=")[2]] if equals and value else list(following[:end])
    names = names or [model_argument(line, bare=not main.command)]
    if not names[0] or served_name in names:
        return ""
    return f"it serves {', '.join(names)}, the pool serves {served_name}"
