"""Flags and variables of the user that would contradict the pool."""

from collections.abc import Iterable, Mapping
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.findings import Finding
from kvcachepool.schema.flags import OFF, REFUSED_ENV, SCHEMA_ENV, abbreviated, refusal, schema_flag, tokens

_OWN_FLAGS: Final[Mapping[str, str]] = {
    "--model": "spec.model",
    "--served-model-name": "spec.model.servedName",
    "--port": "",
    "--host": "",
    "--kv-transfer-config": "spec.backend",
    "--enable-prefix-caching": "",
    "--enable-lora": "lora of spec.schema",
    "--enable-prompt-tokens-details": "",
    "--shutdown-timeout": "spec.engines.shutdownSeconds",
}
"""Flags that the operator renders, and the field to use instead (empty: none is needed)."""


def check_extra_args(pool: KVCachePool) -> Iterable[Finding]:
    """Every flag of extraArgs against those the operator sets and those of the schema."""
    field = "spec.engines.extraArgs"
    for name, _ in tokens(tuple(pool.spec.engines.extra_args)):
        reason = _objection(name)
        if reason:
            yield Finding("InvalidSpec", f"{field}: {name} is not allowed: {reason}", field)


def _objection(name: str) -> str:
    flag = schema_flag(name)
    if flag is not None:
        field = "spec.model.revision" if flag.field == "modelRevision" else f"the field {flag.field} of spec.schema"
        return f"it is part of the cache schema; use {field}"
    if name in _OWN_FLAGS:
        return f"the operator sets it{f'; use {_OWN_FLAGS[name]}' if _OWN_FLAGS[name] else ''}"
    longer = abbreviated(name) or next((own for own in _OWN_FLAGS if name[:2] == "--" and own.startswith(name)), "")
    return refusal(name) or (f"it abbreviates {longer}; write flags in full" if longer else "")


def check_env(pool: KVCachePool, rendered: Mapping[str, str | None]) -> Iterable[Finding]:
    """Variables of the user against those that the operator sets (`None`: set from a reference).

    The same value is fine and rendered once. Values are never shown: one may be a secret.
    """
    for index, variable in enumerate(pool.spec.engines.env):
        field = f"spec.engines.env[{index}]"
        if variable.name in rendered and variable.value != rendered[variable.name]:
            yield Finding("InvalidSpec", f"{field}: {variable.name} {_expected(variable.name, rendered)}", field)
        elif variable.name not in rendered and variable.name in SCHEMA_ENV:
            field_name = SCHEMA_ENV[variable.name]
            yield Finding(
                "InvalidSpec",
                f"{field}: {variable.name} is part of the cache schema; use the field {field_name} of spec.schema",
                field,
            )
        elif variable.name in REFUSED_ENV and (variable.value_from or variable.value not in OFF):
            yield Finding(
                "InvalidSpec", f"{field}: {variable.name} is not allowed: {REFUSED_ENV[variable.name]}", field
            )


def _expected(name: str, rendered: Mapping[str, str | None]) -> str:
    if name in SCHEMA_ENV:
        return (
            f"must be {rendered[name]} as in spec.schema.{SCHEMA_ENV[name]}, found another value; "
            "remove the variable or change the schema"
        )
    return "is set by the operator; remove it"
