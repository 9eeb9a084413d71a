"""The cache schema as a running container shows it: command line and environment."""

from collections.abc import Mapping

from kvcachepool.facts import ContainerFacts
from kvcachepool.schema.cache_schema import CacheSchema, Difference
from kvcachepool.schema.flags import ENV_DEFAULTS, SCHEMA_ENV, SCHEMA_FLAGS, schema_flag, tokens
from kvcachepool.schema.member import named_models
from kvcachepool.schema.values import Value

UNSEEN = frozenset({"engine", "connector", "engineVersion", "storeVersion", "modelId", "lora"})
"""Fields that no flag carries; they are checked by image, config and digest."""
DEFAULTS: Mapping[str, Value] = {
    **{flag.field: flag.default for flag in SCHEMA_FLAGS if flag.default is not None},
    **ENV_DEFAULTS,
}
"""Field to what the engine takes when nothing is said."""


def observed_schema(container: ContainerFacts) -> Mapping[str, Value]:
    """Schema fields that the container's flags and literal environment give, or the engine's fixed default.

    A field that is not given and whose default depends on model or hardware is absent. Of a flag given twice the
    last counts, as in the engine's own parser.
    """
    found = dict(DEFAULTS)
    for name, text in tokens(container.command + container.args):
        flag = schema_flag(name)
        value = flag.read(name, text) if flag is not None else None
        if flag is not None and value is not None:
            found[flag.field] = value
    for variable, field in SCHEMA_ENV.items():
        if variable in container.env:
            found[field] = container.env[variable]
    return found


def differences(expected: CacheSchema, container: ContainerFacts) -> tuple[Difference, ...]:
    """Fields in which a container differs from the schema.

    A field that the schema sets and the container leaves out counts as a difference, unless the engine's fixed default
    says the same: the engine would choose. A default spelled out is no difference either.
    """
    seen = dict(observed_schema(container))
    wanted = {**DEFAULTS, **dict(expected.fields)}
    fields = (wanted.keys() | seen.keys()) - UNSEEN
    named = named_models(container.command + container.args, bare=not container.command)
    if "modelRevision" not in seen and not named:
        fields = fields - {"modelRevision"}  # weights from a volume or image carry no flag
    actual = CacheSchema.of({name: seen.get(name) for name in fields})
    declared = CacheSchema.of({name: wanted.get(name) for name in fields})
    return declared.diff(actual)
