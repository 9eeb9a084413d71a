"""Environment of the engine container: what is missing is added, what is set otherwise is refused."""

from collections.abc import Sequence
from typing import Any

from kvcachepool.backends.base import EngineParts
from kvcachepool.inject.refusal import InjectionRefusedError
from kvcachepool.render.pod import env, env_field
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.flags import OFF, REFUSED_ENV, SCHEMA_ENV
from kvcachepool.schema.member import Object

Json = dict[str, Any]


def wanted_variables(schema: CacheSchema, parts: EngineParts) -> list[Json]:
    """What every engine of the pool has."""
    fields = ((name, schema.get(field)) for name, field in SCHEMA_ENV.items())
    return [
        *(env(name, str(value)) for name, value in fields if value is not None),
        env_field("POD_IP", "status.podIP"),
        *parts.env,
    ]


def missing_variables(container: Object, schema: CacheSchema, parts: EngineParts) -> list[Json]:
    """Variables to add. Raises InjectionRefusedError, which shows values of schema variables only: another one may be
    a secret."""
    present: Sequence[Object] = container.get("env") or ()
    problems = []
    wanted = wanted_variables(schema, parts)
    for variable in present:
        name = variable["name"]
        ours = next((w for w in wanted if w["name"] == name), None)
        if ours is not None and not _same(variable, ours):
            problems.append(_problem(name, variable, ours))
        elif ours is None and name in SCHEMA_ENV:
            problems.append(f"{SCHEMA_ENV[name]} ({name}) is {_value(variable)}, the pool has unset")
        elif name in REFUSED_ENV and ("valueFrom" in variable or variable.get("value", "") not in OFF):
            problems.append(f"{name} is not allowed: {REFUSED_ENV[name]}")
    if problems:
        raise InjectionRefusedError(
            f"container {container['name']}: {'; '.join(problems)}. Remove what differs (the rest is added), or change "
            "the pool"
        )
    names = {variable["name"] for variable in present}
    return [variable for variable in wanted if variable["name"] not in names]


def _problem(name: str, variable: Object, ours: Object) -> str:
    if name in SCHEMA_ENV:
        return f"{SCHEMA_ENV[name]} ({name}) is {_value(variable)}, the pool has {ours['value']}"
    return f"{name} is set otherwise than the pool needs it"


def _value(variable: Object) -> str:
    return "a reference" if "valueFrom" in variable else variable.get("value", "") or "empty"


def _same(variable: Object, ours: Object) -> bool:
    if "valueFrom" not in ours:
        return "valueFrom" not in variable and variable.get("value", "") == ours["value"]
    # the API server has put apiVersion: v1 into a stored fieldRef
    path = (variable.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
    return bool(path == ours["valueFrom"]["fieldRef"]["fieldPath"])
