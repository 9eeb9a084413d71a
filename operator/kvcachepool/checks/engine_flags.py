"""Flags and variables of the user that would contradict the pool."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.credentials import holds_credential
from kvcachepool.findings import Finding
from kvcachepool.schema.flags import (
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
_NO_TLS: Final = (
    "the pool's Service, the kubelet's probes and the operator speak plain HTTP to engines; end TLS before them"
)
_NOT_HERE: Final[Mapping[str, str]] = {
    "--api-key": "whoever reads the pool could read it; set VLLM_API_KEY in spec.engines.env from a Secret",
    "--hf-token": "whoever reads the pool could read it; use spec.model.source.hub.tokenSecretRef",
    "--enable-ssl-refresh": _NO_TLS,
    "--no-enable-ssl-refresh": _NO_TLS,
    **{f"--ssl-{part}": _NO_TLS for part in ("keyfile", "certfile", "ca-certs", "cert-reqs", "ciphers")},
}
"""Flags with a secret as their value, and of TLS (vLLM 0.33.0, `entrypoints/launchers/cli_args.py`), and why not."""
_DATA_PARALLEL: Final = re.compile(r"--data-parallel-|-dp")
"""Flags of vLLM 0.33.0 (`engine/arg_utils.py`): every rank of them is an engine with devices of its own, behind one
port."""
_STORE_TLS: Final = re.compile(r"^(MC|MOONCAKE)_([A-Z0-9]+_)*(TLS|SSL|MTLS|CERT|CA_FILE|HTTPS)")

_UNENCRYPTED: Final = (
    "Mooncake knows no encryption between master, store and engines and would ignore it; keep the pool in a network "
    "that you trust"
)
_CREDENTIAL: Final = (
    "holds what looks like a credential (a token, or an address with a password), which whoever reads the pool could "
    "read; put it into a Secret and name that in valueFrom.secretKeyRef of spec.engines.env"
)


def check_extra_args(pool: KVCachePool) -> Iterable[Finding]:
    """Every flag of extraArgs against those the operator sets and those of the schema."""
    field = "spec.engines.extraArgs"
    for index, text in enumerate(pool.spec.engines.extra_args):
        if holds_credential(text):
            yield Finding("InvalidSpec", f"{field}[{index}] {_CREDENTIAL}", field)
    for word in hidden(tuple(pool.spec.engines.extra_args)):
        yield Finding("InvalidSpec", f"{field}: {word} {HIDDEN}", field)
    for name, _ in tokens(tuple(pool.spec.engines.extra_args)):
        reason = _objection(name)
        if reason:
            yield Finding("InvalidSpec", f"{field}: {name} is not allowed: {reason}", field)


def _objection(word: str) -> str:
    name = word.partition(".")[0]  # the engine's parser takes --flag.key=value for a part of that flag's JSON
    flag = schema_flag(name)
    if flag is not None:
        field = "spec.model.revision" if flag.field == "modelRevision" else f"the field {flag.field} of spec.schema"
        return f"it is part of the cache schema; use {field}"
    if name in _OWN_FLAGS:
        return f"the operator sets it{f'; use {_OWN_FLAGS[name]}' if _OWN_FLAGS[name] else ''}"
    if name in _NOT_HERE or name.startswith("--ssl-"):
        return _NOT_HERE.get(name, _NO_TLS)
    if _DATA_PARALLEL.match(name):
        return "it makes several engines in one pod, which has the devices and the memory of one; raise " + (
            "spec.engines.replicas"
        )
    others = (*_OWN_FLAGS, *_NOT_HERE)
    longer = abbreviated(name) or next((own for own in others if name[:2] == "--" and own.startswith(name)), "")
    return refusal(name) or (f"it abbreviates {longer}; write flags in full" if longer else "")


def check_env(pool: KVCachePool, rendered: Mapping[str, str | None]) -> Iterable[Finding]:
    """Variables of the user against those that the operator sets (`None`: set from a reference).

    The same value is fine and rendered once. Values are never shown: one may be a secret.
    """
    for index, variable in enumerate(pool.spec.engines.env):
        field = f"spec.engines.env[{index}]"
        if holds_credential(variable.value or ""):
            yield Finding("InvalidSpec", f"{field}: the value of {variable.name} {_CREDENTIAL}", field)
        if _STORE_TLS.match(variable.name):
            yield Finding("InvalidSpec", f"{field}: {variable.name} is not allowed: {_UNENCRYPTED}", field)
        elif variable.name in rendered and variable.value != rendered[variable.name]:
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
