"""Flags and variables of the user that would contradict the pool."""

from collections.abc import Iterable, Mapping
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.findings import Finding
from kvcachepool.schema.flags import SCHEMA_ENV, SCHEMA_FLAGS, schema_flag, tokens

_OWN_FLAGS: Final[Mapping[str, str]] = {
    "--model": "spec.model",
    "--served-model-name": "spec.model.servedName",
    "--port": "",
    "--host": "",
    "--kv-transfer-config": "spec.backend",
    "--enable-prefix-caching": "",
    "--no-enable-prefix-caching": "",
    "--enable-prompt-tokens-details": "",
    "--shutdown-timeout": "spec.engines.shutdownSeconds",
}
"""Flags that the operator renders, and the field to use instead (empty: none is needed)."""

_CONFLICTING: Final[Mapping[str, str]] = {
    "--kv-offloading-size": "it replaces the connector of --kv-transfer-config; use spec.backend.native.cpuBytes",
    "--kv-offloading-backend": "it replaces the connector of --kv-transfer-config; use spec.backend",
    "--config": "a file could set any flag unseen; give flags in spec.engines.extraArgs",
    "--hf-overrides": "it changes the cached bytes without a trace in the key; serve a model with the settings in it",
    "--rope-scaling": "it changes the cached bytes without a trace in the key; serve a model with the settings in it",
    "--rope-theta": "it changes the cached bytes without a trace in the key; serve a model with the settings in it",
    "--enable-sleep-mode": "the engine refuses it together with a shared cache",
}
"""Flags that would break the cache, and why."""


_REFUSED_ENV: Final[Mapping[str, str]] = {
    "VLLM_SERVER_DEV_MODE": "it serves /reset_prefix_cache, with which anybody can empty the pool for everybody",
}

_REFUSED: Final = (*(flag.name for flag in SCHEMA_FLAGS), *_OWN_FLAGS, *_CONFLICTING)


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
    if name in _CONFLICTING:
        return _CONFLICTING[name]
    # The engine's parser (argparse) takes any unambiguous beginning of a flag for the flag.
    longer = next((refused for refused in _REFUSED if name.startswith("--") and refused.startswith(name)), None)
    return f"it abbreviates {longer}; write flags in full" if longer else ""


def check_env(pool: KVCachePool, rendered: Mapping[str, str | None]) -> Iterable[Finding]:
    """Variables of the user against those that the operator sets (`None`: set from a reference).

    The same value is fine and rendered once. Values are never shown: one may be a secret.
    """
    for index, variable in enumerate(pool.spec.engines.env):
        field = f"spec.engines.env[{index}]"
        if variable.name in rendered and variable.value != rendered[variable.name]:
            yield Finding("InvalidSpec", f"{field}: {variable.name} {_expected(variable.name, rendered)}", field)
        elif variable.name in _REFUSED_ENV:
            yield Finding(
                "InvalidSpec", f"{field}: {variable.name} is not allowed: {_REFUSED_ENV[variable.name]}", field
            )
        elif variable.name not in rendered and variable.name in SCHEMA_ENV:
            field_name = SCHEMA_ENV[variable.name]
            yield Finding(
                "InvalidSpec",
                f"{field}: {variable.name} is part of the cache schema; use the field {field_name} of spec.schema",
                field,
            )


def _expected(name: str, rendered: Mapping[str, str | None]) -> str:
    if name in SCHEMA_ENV:
        return (
            f"must be {rendered[name]} as in spec.schema.{SCHEMA_ENV[name]}, found another value; "
            "remove the variable or change the schema"
        )
    return "is set by the operator; remove it"
