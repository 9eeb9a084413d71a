"""The API reference page, generated from the models: what the user reads is what the API server checks."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from kvcachepool.api.base import StatusModel
from kvcachepool.api.crd import COLUMNS, WIDE_COLUMNS, models_in, nested_models, structural, words
from kvcachepool.api.pool import KVCachePool, PoolSpec
from kvcachepool.api.status import PoolStatus
from kvcachepool.constants import API_VERSION, KIND, SHORT_NAME

_LIMITS = (("maxLength", "At most {} characters."), ("maxItems", "At most {} items."), ("pattern", "Matches `{}`."))


def api_reference() -> str:
    """Markdown, one section for each kind of object in spec and status."""
    lines = [
        f"# {KIND} (`{API_VERSION}`)",
        "",
        f"{words(KVCachePool.__doc__ or '')} Namespaced; short name `{SHORT_NAME}`. This page is generated from the "
        "models that the CRD is generated from, too.",
        "",
        "Sizes are Kubernetes quantities (`80Gi`, `500M`, `1e9` or plain bytes). Defaults are filled in and stored by "
        "the API server when a pool is created, so a later operator with other defaults changes nothing in it.",
        "",
        "Fields that are not on this page are refused by `kubectl` and by the API server's strict field validation.",
        "",
    ]
    for title, model in (("spec", PoolSpec), ("status", PoolStatus)):
        lines += [f"## {title}", "", words(model.__doc__ or ""), "", *_fields(model)]
        for nested in _reachable(model):
            lines += [f"### {nested.__name__}", "", words(nested.__doc__ or ""), "", *_fields(nested)]
    lines += ["## Columns of `kubectl get kvpool`", "", "| Column | Path | Meaning |", "|---|---|---|"]
    lines += [f"| {name} | `{_cell(path)}` | {meaning} |" for name, _, path, meaning in COLUMNS]
    lines += [f"| {name} (`-o wide`) | `{_cell(path)}` | {meaning} |" for name, _, path, meaning in WIDE_COLUMNS]
    return "\n".join(lines) + "\n"


def _reachable(model: type[BaseModel]) -> Iterable[type[BaseModel]]:
    """Every model below `model` once, in the order in which a reader meets them."""
    found: dict[type[BaseModel], None] = {}

    def visit(outer: type[BaseModel]) -> None:
        for inner in nested_models(outer):
            if inner not in found:
                found[inner] = None
                visit(inner)

    visit(model)
    return found


def _fields(model: type[BaseModel]) -> list[str]:
    schema = structural(model, defaults=not issubclass(model, StatusModel))
    required = schema.get("required", [])
    lines = ["| Field | Type | Default | Description |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        alias = field.alias or to_camel(name)
        node = schema["properties"][alias]
        default = "required" if alias in required else _default(node)
        text = " ".join([node.get("description", ""), *_limits(node)]).strip()
        lines.append(f"| `{alias}` | {_type(field, node)} | {default} | {_cell(text)} |")
    lines.append("")
    checks = [f"- {rule['message']}" for rule in schema.get("x-kubernetes-validations", ())]
    return [*lines, "Rules:", "", *checks, ""] if checks else lines


def _default(node: Mapping[str, Any]) -> str:
    if "default" not in node:
        return ""
    value = node["default"]
    if isinstance(value, Mapping) and "x-kubernetes-validations" in node:
        return ""  # a whole object: its own section says the same
    return "" if value == {} else f"`{_cell(value if value and isinstance(value, str) else json.dumps(value))}`"


def _type(field: FieldInfo, node: Mapping[str, Any]) -> str:
    inner = [f"[{model.__name__}](#{model.__name__.lower()})" for model in models_in(field.annotation)]
    if inner:
        return f"list of {inner[0]}" if node["type"] == "array" else inner[0]
    return _plain(node)


def _plain(node: Mapping[str, Any]) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    if node["type"] == "array":
        return f"list of {_plain(node['items'])}"
    if "additionalProperties" in node:
        return f"map of {_plain(node['additionalProperties'])}"
    return str(node.get("format", node["type"]))


def _limits(node: Mapping[str, Any]) -> Iterable[str]:
    if "enum" in node:
        yield f"One of {', '.join(f'`{value}`' for value in node['enum'])}."
    if "minimum" in node:
        yield f"{node['minimum']} to {node['maximum']}."
    if node.get("type") != "object":
        for rule in node.get("x-kubernetes-validations", ()):
            yield f"{rule['message'][:1].upper()}{rule['message'][1:]}."
    for keyword, sentence in _LIMITS:
        if keyword in node and not node.get("x-kubernetes-int-or-string"):
            yield sentence.format(node[keyword])


def _cell(text: Any) -> str:
    return str(text).replace("|", r"\|")
