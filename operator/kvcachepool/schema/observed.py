"""The cache schema as a running container shows it: command line and environment."""

from collections.abc import Mapping

from kvcachepool.facts import ContainerFacts
from kvcachepool.schema.cache_schema import CacheSchema, Difference
from kvcachepool.schema.flags import SCHEMA_ENV, SCHEMA_FLAGS, schema_flag, tokens

_KEYED_BY_ENGINE = frozenset({"engine", "connector", "engineVersion", "storeVersion", "modelId"})
"""Fields that no flag carries; they are checked by image, config and digest."""


def observed_schema(container: ContainerFacts) -> Mapping[str, str | int | None]:
    """Schema fields that the container's flags and literal environment give, or the engine's fixed default.

    A field that is not given and whose default depends on model or hardware is absent. Of a flag given twice the
    last counts, as in the engine's own parser.
    """
    found: dict[str, str | int | None] = {f.field: f.default for f in SCHEMA_FLAGS if f.default is not None}
    for name, value in tokens(container.command + container.args):
        flag = schema_flag(name)
        if flag is not None and value is not None:
            found[flag.field] = int(value) if flag.number and value.isdecimal() else value
    for variable, field in SCHEMA_ENV.items():
        if variable in container.env:
            found[field] = container.env[variable]
    return found


def differences(
    expected: CacheSchema, container: ContainerFacts, *, hashes_only: bool = False
) -> tuple[Difference, ...]:
    """Fields in which a container differs from the schema.

    `hashes_only` is for store members: they hash nothing of the model, but share the seed.
    A field that the schema sets and the container leaves out counts as a difference: the engine would choose.
    """
    wanted = dict(expected.fields)
    seen = dict(observed_schema(container))
    fields = {"hashSeed"} if hashes_only else (wanted.keys() | seen.keys()) - _KEYED_BY_ENGINE
    if "modelRevision" not in seen:
        fields = fields - {"modelRevision"}  # weights from a volume or image carry no flag
    actual = CacheSchema.of({name: seen.get(name) for name in fields})
    declared = CacheSchema.of({name: wanted.get(name) for name in fields})
    return declared.diff(actual)
