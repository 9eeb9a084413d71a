"""What differs between a pod spec as it is rendered and as it runs, in words.

The live one has the API server's defaults, so only what is rendered is compared; of what only runs, just the fields
that have no default.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvcachepool.quantity import parse_amount

Json = Mapping[str, Any]

_WITHOUT_DEFAULT: Final = (
    "affinity",
    "hostNetwork",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
_SHOWN: Final = ("image", "args", "resources")
"""Fields whose values are shown. Others, such as variables, are only named."""


def differences(desired: Json, live: Json) -> tuple[str, ...]:
    """Sentence parts such as `--client_ttl: 10 → 20`; never empty for specs that differ by their hashes."""
    found = [
        *_walk("", desired, live),
        *(f"{name}: removed" for name in _WITHOUT_DEFAULT if name in live and name not in desired),
    ]
    return tuple(dict.fromkeys(found)) or ("the pod template",)


def _walk(path: str, desired: Any, live: Any) -> Iterator[str]:
    name = path.rsplit(".", 1)[-1]
    if name == "args":
        yield from _flags(desired, live if isinstance(live, Sequence) else ())
    elif isinstance(desired, Mapping):
        have = live if isinstance(live, Mapping) else {}
        for key in desired:
            yield from _walk(f"{path}.{key}".lstrip("."), desired[key], have.get(key))
        if name in {"limits", "requests"}:
            yield from (f"{path}.{key}: removed" for key in have if key not in desired)
    elif isinstance(desired, list) and all(isinstance(item, Mapping) and "name" in item for item in desired):
        have = {item.get("name"): item for item in live or () if isinstance(item, Mapping)}
        for item in desired:
            # there is one container, so that its name says nothing
            inner = "" if path == "containers" else f"{path}[{item['name']}]"
            yield from _walk(inner, item, have.get(item["name"]))
    elif isinstance(desired, list) and isinstance(live, list) and len(desired) == len(live):
        for wanted, found in zip(desired, live, strict=True):
            yield from (path for _ in _walk(path, wanted, found))
    elif not _same(desired, live):
        shown = any(part in _SHOWN for part in path.split("."))
        yield f"{path}: {'unset' if live is None else live} → {desired}" if shown else path


def _flags(desired: Sequence[str], live: Sequence[str]) -> Iterator[str]:
    wanted, found = (dict(arg.partition("=")[::2] for arg in args) for args in (desired, live))
    for flag in dict.fromkeys((*wanted, *found)):
        if wanted.get(flag) != found.get(flag):
            yield f"{flag}: {found.get(flag, 'unset')} → {wanted.get(flag, 'unset')}"


def _same(desired: Any, live: Any) -> bool:
    """The API server writes `1000m` as `1`."""
    if desired == live:
        return True
    try:
        return parse_amount(desired) == parse_amount(live)
    except ValueError:
        return False
