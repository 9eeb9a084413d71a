"""Secrets and TLS that a pool must not have: refused with the field named, and never repeated."""

from typing import Any

import pytest

from kvcachepool.api.parse import Invalid, parse_pool
from kvcachepool.credentials import holds_credential, secret_name
from kvcachepool.facts import Observed
from kvcachepool.plan import make_plan
from kvcachepool.preview import PreviewError, preview
from kvcachepool.settings import Settings
from tests.pools import pool, raw

CANARY = "canary-5f2a9c"
TOKEN = "hf_" + "canary5f2a9c"


def said(spec: dict[str, Any]) -> list[str]:
    """Findings for a spec, whether they come of parsing or of planning."""
    parsed = parse_pool(raw(spec))
    if isinstance(parsed, Invalid):
        return [finding.message for finding in parsed.findings]
    return [finding.message for finding in make_plan(parsed, Observed(), Settings()).findings]


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "db_password",
     "TLS_PRIVATE_KEY", "SECRET", "GCP_CREDENTIALS", "MOONCAKE_AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_a_variable_with_a_secrets_name_takes_its_value_from_a_secret(name: str) -> None:
    (message,) = said({"engines": {"env": [{"name": "A", "value": "b"}, {"name": name, "value": CANARY}]}})
    assert message.startswith("spec.engines.env[1]: a variable of this name holds a secret")
    assert "secretKeyRef" in message
    assert CANARY not in message
    reference = {"secretKeyRef": {"name": "s", "key": "k"}}
    assert said({"engines": {"env": [{"name": name, "valueFrom": reference}]}}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("HF_TOKEN_PATH", "/run/secrets/token"), ("TOKENIZERS_PARALLELISM", "false"), ("MAX_TOKENS", "4096"),
     ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"), ("HF_TOKEN", ""), ("HF_TOKEN", "$(OTHER)"), ("AWS_ACCESS_KEY_ID", "id")],
)  # fmt: skip
def test_names_that_only_look_so_may_have_a_value(name: str, value: str) -> None:
    assert said({"engines": {"env": [{"name": name, "value": value}]}}) == []


@pytest.mark.parametrize("value", [TOKEN, f"https://user:{CANARY}@proxy:80", "eyJhbGciOiJI.eyJjYW5hcnk1ZjJhOWM"])
def test_a_credential_under_a_harmless_name_is_found_too(value: str) -> None:
    (message,) = said({"engines": {"env": [{"name": "PROXY", "value": value}]}})
    assert message.startswith("spec.engines.env[0]: the value of PROXY holds what looks like a credential")
    assert value not in message
    (message,) = said({"engines": {"extraArgs": [f"--otlp-traces-endpoint={value}"]}})
    assert message.startswith("spec.engines.extraArgs[0] holds what looks like a credential")
    assert value not in message


@pytest.mark.parametrize(
    ("args", "instead"),
    [([f"--api-key={CANARY}"], "VLLM_API_KEY"), (["--api-key", CANARY], "VLLM_API_KEY"), ([f"--api_key={CANARY}"], "VLLM_API_KEY"),
     ([f"--api-k={CANARY}"], "in full"), ([f"--hf-token={CANARY}"], "tokenSecretRef"), ([f"--hf-tok={CANARY}"], "in full"),
     (["--ssl-certfile=/x", "--ssl-keyfile=/y"], "plain HTTP"), (["--enable-ssl-refresh"], "plain HTTP"),
     (["--ssl_ca_certs", "/x"], "plain HTTP"), (["--ssl-new-in-a-later-version=1"], "plain HTTP"), (["--ssl-k=/y"], "plain HTTP")],
)  # fmt: skip
def test_flags_with_a_secret_and_flags_of_tls_are_refused(args: list[str], instead: str) -> None:
    messages = said({"engines": {"extraArgs": args}})
    assert messages
    assert all(message.startswith("spec.engines.extraArgs: --") for message in messages)
    assert all(instead in message and CANARY not in message for message in messages)


@pytest.mark.parametrize(
    "name", ["MC_TLS", "MC_STORE_ENABLE_TLS", "MOONCAKE_SSL_CERT", "MC_CERT_FILE", "MOONCAKE_USE_HTTPS"]
)
def test_tls_that_mooncake_would_ignore_is_refused(name: str) -> None:
    (message,) = said({"engines": {"env": [{"name": name, "value": "1"}]}})
    assert message.startswith(f"spec.engines.env[0]: {name} is not allowed: Mooncake knows no encryption")
    assert said({"engines": {"env": [{"name": "MC_STORE_MEMCPY", "value": "1"}]}}) == []


@pytest.mark.parametrize("field", ["tls", "ssl", "tlsSecretRef", "mtls"])
def test_a_tls_field_is_no_field(field: str) -> None:
    (message,) = said({"store": {"master": {field: True}}})
    assert message.startswith(f"spec.store.master.{field} is not a field of this API version")


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"source": {"hub": {"tokenSecretRef": TOKEN}}}},
        {"model": {"source": {"hub": {"tokenSecretRef": {"name": f"{TOKEN}_A"}}}}},
        {"model": {"source": {"hub": {"tokenSecretRef": {"name": "x", "key": f"{CANARY} A"}}}}},
        {"imagePullSecrets": [{"name": f"{TOKEN}_A"}]},
        {"imagePullSecrets": [TOKEN]},
        {"engines": {"env": [{"name": "X", "value": [CANARY]}]}},
        {"engines": {"env": [{"name": "X", "value": 1, "valueFrom": CANARY}]}},
        {"engines": {"extraArgs": [{"api-key": CANARY}]}},
        {"engines": {"extraArgs": [f"--api-key={CANARY}" * 500]}},
    ],
)
def test_a_secret_in_a_wrong_place_is_not_repeated(spec: dict[str, Any]) -> None:
    messages = said(spec)
    assert messages
    assert not [message for message in messages if "canary" in message.lower()]


def test_a_broken_manifest_is_not_quoted() -> None:
    with pytest.raises(PreviewError, match=r"not YAML: .* at line 3") as error:
        list(preview(f"spec:\n  env:\n  token: {CANARY}: x\n", Settings()))
    assert CANARY not in str(error.value)


def test_tokens_are_known_by_their_form() -> None:
    assert holds_credential(TOKEN)
    assert not holds_credential("https://host:8080/path@x")
    assert not secret_name("PYTHONHASHSEED")


def test_a_secret_reaches_the_engine_only_by_reference() -> None:
    made = make_plan(pool({"model": {"source": {"hub": {"tokenSecretRef": {"name": "hub"}}}}}), Observed(), Settings())
    assert made.findings == ()
