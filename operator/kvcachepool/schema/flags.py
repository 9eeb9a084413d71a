"""Engine flags and variables that carry schema fields: the one table that renders them, refuses a user's
override of them, and reads them back from running pods.

Source: `vllm/engine/arg_utils.py` of vLLM 0.33.0; short forms `-tp`, `-pp`, `-dcp`, `-pcp` are aliases there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of the engine: schema field, its long name, and aliases."""

    field: str
    name: str
    aliases: tuple[str, ...] = ()
    number: bool = False
    default: str | int | None = None
    """What the engine takes when the flag is left out, where that does not depend on model or hardware."""


SCHEMA_FLAGS: Final = (
    Flag("tensor", "--tensor-parallel-size", ("-tp",), number=True, default=1),
    Flag("pipeline", "--pipeline-parallel-size", ("-pp",), number=True, default=1),
    Flag("decodeContext", "--decode-context-parallel-size", ("-dcp",), number=True, default=1),
    Flag("prefillContext", "--prefill-context-parallel-size", ("-pcp",), number=True, default=1),
    Flag("interleave", "--cp-kv-cache-interleave-size", number=True, default=1),
    Flag("dtype", "--dtype", default="auto"),
    Flag("kvCacheDtype", "--kv-cache-dtype", default="auto"),
    Flag("quantization", "--quantization", ("-q",)),
    Flag("blockSize", "--block-size", number=True),
    Flag("hashAlgorithm", "--prefix-caching-hash-algo"),
    Flag("attentionBackend", "--attention-backend"),
    Flag("modelRevision", "--revision"),
)
SCHEMA_ENV: Final[Mapping[str, str]] = {"PYTHONHASHSEED": "hashSeed", "VLLM_KV_CACHE_LAYOUT": "kvLayout"}

_BY_NAME: Final = {alias: flag for flag in SCHEMA_FLAGS for alias in (flag.name, *flag.aliases)}


def tokens(args: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """(flag, value) pairs of a command line: `--a b`, `--a=b`, `--a_b c` and bare switches alike.

    vLLM reads underscores in flag names as dashes; so does this.
    """
    index = 0
    while index < len(args):
        text = args[index]
        index += 1
        if not text.startswith("-") or text in {"-", "--"}:
            continue
        name, equals, value = text.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("_", "-")
        if equals:
            yield name, value
        elif index < len(args) and not _is_flag(args[index]):
            yield name, args[index]
            index += 1
        else:
            yield name, None


def _is_flag(text: str) -> bool:
    return text.startswith("-") and not text[1:2].isdigit()


def schema_flag(name: str) -> Flag | None:
    """The schema flag of that spelling, if it is one."""
    return _BY_NAME.get(name)
