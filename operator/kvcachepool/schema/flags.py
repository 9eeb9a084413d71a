"""Engine flags and variables that carry schema fields: the one table that renders them, refuses a user's override of
them, reads them back from running pods, and from which the API server's admission policy is generated.

Sources: `vllm/engine/arg_utils.py`, `vllm/entrypoints/launchers/cli_args.py` and `vllm/envs.py` of vLLM 0.33.0; every
spelling below was tried with the parser of 0.32.0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """How a flag takes its value."""

    TEXT = "text"
    NUMBER = "number"
    LIST = "list"
    """All words up to the next flag."""
    SWITCH = "switch"
    """No value: `name` says Disabled, a name in `opposites` says Enabled."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of the engine: schema field, its long name, and aliases."""

    field: str
    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind = Kind.TEXT
    default: str | int | None = None
    """What the engine takes when the flag is left out, where that does not depend on model or hardware."""
    opposites: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every spelling in full."""
        return (self.name, *self.aliases, *self.opposites)

    def render(self, value: str | int) -> tuple[str, ...]:
        """The words that give `value` on a command line."""
        if self.kind is Kind.SWITCH:
            return (self.name if value == DISABLED else self.opposites[0],)
        if self.kind is Kind.LIST:
            return (self.name, *str(value).split(","))
        return (f"{self.name}={value}",)

    def read(self, name: str, value: str | None) -> str | int | None:
        """The field's value from what `tokens` gave; None when the flag lacks its value."""
        if self.kind is Kind.SWITCH:
            return ENABLED if name in self.opposites else DISABLED
        if self.kind is Kind.NUMBER and value is not None and value.isascii() and value.isdecimal() and len(value) < 10:
            return int(value)
        return value


ENABLED: Final = "Enabled"
DISABLED: Final = "Disabled"

SCHEMA_FLAGS: Final = (
    Flag("tensor", "--tensor-parallel-size", ("-tp",), Kind.NUMBER, default=1),
    Flag("pipeline", "--pipeline-parallel-size", ("-pp",), Kind.NUMBER, default=1),
    Flag("decodeContext", "--decode-context-parallel-size", ("-dcp",), Kind.NUMBER, default=1),
    Flag("prefillContext", "--prefill-context-parallel-size", ("-pcp",), Kind.NUMBER, default=1),
    # the second one is the former name; above 1 it overrides the first
    Flag("interleave", "--cp-kv-cache-interleave-size", ("--dcp-kv-cache-interleave-size",), Kind.NUMBER, default=1),
    Flag("dtype", "--dtype", default="auto"),
    Flag("kvCacheDtype", "--kv-cache-dtype", default="auto"),
    Flag("kvCacheDtypeSkipLayers", "--kv-cache-dtype-skip-layers", kind=Kind.LIST),
    Flag("quantization", "--quantization", ("-q",)),
    Flag("blockSize", "--block-size", kind=Kind.NUMBER),
    Flag("prefixMatchUnit", "--prefix-match-unit", kind=Kind.NUMBER),
    Flag("hashAlgorithm", "--prefix-caching-hash-algo", default="sha256"),
    Flag("attentionBackend", "--attention-backend"),
    Flag("modelRevision", "--revision"),
    Flag("mambaCacheDtype", "--mamba-cache-dtype", default="auto"),
    Flag("mambaSsmCacheDtype", "--mamba-ssm-cache-dtype", default="auto"),
    Flag("mambaBlockSize", "--mamba-block-size", kind=Kind.NUMBER),
    Flag(
        "hybridCacheManager",
        "--disable-hybrid-kv-cache-manager",
        kind=Kind.SWITCH,
        opposites=("--no-disable-hybrid-kv-cache-manager", "--enable-hybrid-kv-cache-manager"),
    ),
    Flag("speculativeMethod", "--spec-method"),
    Flag("speculativeModel", "--spec-model"),
    Flag("speculativeTokens", "--spec-tokens", kind=Kind.NUMBER),
    Flag("loraModules", "--lora-modules", kind=Kind.LIST),
)
SCHEMA_ENV: Final[Mapping[str, str]] = {
    "PYTHONHASHSEED": "hashSeed",
    "VLLM_KV_CACHE_LAYOUT": "kvLayout",
    "VLLM_PP_LAYER_PARTITION": "layerPartition",
    "VLLM_SSM_CONV_STATE_LAYOUT": "convStateLayout",
}
ENV_DEFAULTS: Final[Mapping[str, str]] = {"convStateLayout": "SD"}
"""What the engine takes without the variable, where that is fixed."""

CONFIG_FLAG: Final = "--kv-transfer-config"
"""Carries connector and `cache_prefix`."""

NUMBERS: Final = frozenset(flag.field for flag in SCHEMA_FLAGS if flag.kind is Kind.NUMBER)
"""Fields whose values are numbers; all others are texts."""

_BYTES: Final = "it changes the cached bytes without a trace in the key; serve a model with the settings in it"
REFUSED_FLAGS: Final[Mapping[str, str]] = {
    "--kv-offloading-size": "it replaces the connector of --kv-transfer-config; use spec.backend",
    "--kv-offloading-backend": "it replaces the connector of --kv-transfer-config; use spec.backend",
    "--config": "a file could set any flag unseen; give flags on the command line",
    "--attention-config": "it could set the attention backend unseen; use attentionBackend of spec.schema",
    "-ac": "it could set the attention backend unseen; use attentionBackend of spec.schema",
    "--speculative-config": "its layers are part of the cache schema; use speculative of spec.schema",
    "-sc": "its layers are part of the cache schema; use speculative of spec.schema",
    "--hf-overrides": _BYTES,
    "--hf-config-path": "another model's settings change the cached bytes without a trace in the key; serve a model "
    "with the settings in it",
    "--rope-scaling": _BYTES,
    "--rope-theta": _BYTES,
    "--quantization-config": _BYTES,
    "--no-enable-prefix-caching": "without prefix caching nothing can be shared",
    "--disable-prefix-caching": "without prefix caching nothing can be shared",
    "--enable-sleep-mode": "the engine refuses it together with a shared cache",
}
"""Flags that no member may have, also with a dot and a key behind them, and why."""
REFUSED_ENV: Final[Mapping[str, str]] = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "an adapter loaded later under an old name and path would be read as a hit; "
    "list adapters in lora of spec.schema",
    "VLLM_MODEL_REDIRECT_PATH": "its file puts other weights behind the model's name; name the model that is served",
    "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "it changes the order of the cached bytes without a trace in the key",
    "VLLM_SERVER_DEV_MODE": "it serves /reset_prefix_cache, with which anybody can empty the pool for everybody",
}
"""Variables that no member may set to anything but 0 or false, and why."""
OFF: Final = frozenset({"", "0", "false", "False"})

_BY_NAME: Final = {name: flag for flag in SCHEMA_FLAGS for name in flag.names}
WHOLE_FLAGS: Final = (*_BY_NAME, CONFIG_FLAG)
"""Flags whose value members must give in one piece."""
DOTTED: Final = "a key behind a dot replaces the flag's whole value unseen; give the value in one piece"
"""Why these may not be written as `--flag.key`."""
KNOWN_FLAGS: Final = (*WHOLE_FLAGS, *REFUSED_FLAGS)
"""All that a shorter spelling must not stand for."""
GLUED: Final = tuple(name for name in _BY_NAME if len(name) == 2)
"""One-letter flags, whose value may follow without a space: `-qawq`."""
OTHER_FLAGS: Final = frozenset({"-dc"})
"""Flags of the engine that are no schema flags but begin like one."""
REFERENCE: Final = "$("
"""What a variable's name stands behind in `command` and `args`."""
HIDDEN: Final = "could be any flag once a variable's value is in its place; write the word itself, or --flag=$(NAME)"
"""Why a word is refused that `hidden` gives."""
SWITCH_LIKE: Final = "^--(enable|disable|no)-"
"""How names of the engine's flags begin that take no value."""
SWITCHES: Final = frozenset(
    {"--headless", *(name for flag in SCHEMA_FLAGS if flag.kind is Kind.SWITCH for name in flag.names)}
)
"""Flags that are known to take no value, so that a word behind one is no value of it."""


def tokens(args: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """(flag, value) pairs of a command line: `--a b`, `--a=b`, `--a_b c`, `-qb` and bare switches alike; the values of
    a list are joined by commas.

    vLLM reads underscores in flag names (up to a dot) as dashes; so does this.
    """
    index = 0
    while index < len(args):
        text = args[index]
        index += 1
        if not text.startswith("-") or text in {"-", "--"}:
            continue
        name, equals, value = text.partition("=")
        if name.startswith("--"):
            base, dot, key = name.partition(".")
            name = base.replace("_", "-") + dot + key
        elif name[:2] in GLUED and len(name) > 2:
            name, equals, value = text[:2], "=", text[2:]
        if equals:
            yield name, value
            continue
        flag, first = _BY_NAME.get(name), index
        limit = {Kind.LIST: len(args), Kind.SWITCH: index}.get(flag.kind if flag else Kind.TEXT, index + 1)
        while index < min(limit, len(args)) and not _is_flag(args[index]):
            index += 1
        yield name, ",".join(args[first:index]) if index > first else None


def flag_name(word: str) -> str:
    """The flag that a word is, as `tokens` names it; empty for any other word."""
    return next((name for name, _ in tokens((word,))), "") if _is_flag(word) else ""


def hidden(args: tuple[str, ...]) -> Iterator[str]:
    """Beginnings of words that may be any flag once the kubelet has put a variable's value in: `$(X)`, unless it is
    the value of the flag before it, and `--a$(X)`. The kubelet never makes several words of one."""
    for index, word in enumerate(args):
        before = args[index - 1] if index else ""
        value = "=" not in before and flag_name(before) != "" and not _takes_none(flag_name(before))
        named = word.startswith("-") and REFERENCE in word.partition("=")[0]
        if named or (word.startswith(REFERENCE) and not value):
            yield word.partition(")")[0] + ")"


def _takes_none(name: str) -> bool:
    return name in SWITCHES or re.search(SWITCH_LIKE, name) is not None


def _is_flag(text: str) -> bool:
    return text.startswith("-") and not text[1:2].isdigit()


def schema_flag(name: str) -> Flag | None:
    """The schema flag of that spelling, if it is one."""
    return _BY_NAME.get(name)


def refusal(name: str) -> str:
    """Why no member may have that flag; empty when it may.

    Of a flag with a key behind a dot the engine's parser makes JSON, which takes the place of the flag's own value
    wherever that stands.
    """
    base, dot, _ = name.partition(".")
    return REFUSED_FLAGS.get(base, DOTTED if dot and base in WHOLE_FLAGS else "")


def abbreviated(name: str) -> str:
    """The flag that `name` is a beginning of, if that concerns the cache: the engine's parser takes any unambiguous
    beginning for the flag, `--tensor-par` and even `-t`, also in front of a dot. Empty for a flag in full."""
    base = name.partition(".")[0]
    if base in KNOWN_FLAGS or base in OTHER_FLAGS or len(base.strip("-")) == 0:
        return ""
    return next((full for full in KNOWN_FLAGS if full.startswith(base)), "")
