"""When running pods are replaced: only because the user's spec asks for it.

An operator upgrade may render another template for the same spec; pods keep the former one until the user
changes something that concerns them (or spec.rolloutToken). A template edited by hand is put back.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvcachepool import constants

Json = dict[str, Any]

_OWN_LABELS: Final = (constants.LABEL_POOL, constants.LABEL_COMPONENT, constants.LABEL_SCHEMA)


def keep_running(desired: Json, live: Mapping[str, Any] | None) -> tuple[Json, bool]:
    """(what to apply, whether it keeps an older operator's template)."""
    if live is None:
        return desired, False
    wanted, found = desired["metadata"]["annotations"], live["metadata"].get("annotations", {})
    if found.get(constants.ANNOTATION_INPUTS) != wanted[constants.ANNOTATION_INPUTS]:
        return desired, False
    if found.get(constants.ANNOTATION_TEMPLATE) == wanted[constants.ANNOTATION_TEMPLATE]:
        return _with_templates(desired, desired, live), False
    if edited_by_hand(live):
        return desired, False
    kept = _with_templates(desired, live, live)
    kept["metadata"] = desired["metadata"] | {
        "annotations": wanted | {constants.ANNOTATION_TEMPLATE: found.get(constants.ANNOTATION_TEMPLATE, "")}
    }
    return kept, True


def other_template(desired: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether applying `desired` replaces pods. By the hashes, since a live template has the API server's defaults."""
    return _hashes(desired) != _hashes(live)


def _hashes(workload: Mapping[str, Any]) -> tuple[Any, Any]:
    annotations = workload["metadata"].get("annotations") or {}
    return annotations.get(constants.ANNOTATION_INPUTS), annotations.get(constants.ANNOTATION_TEMPLATE)


def as_it_runs(kind: str, live: Mapping[str, Any], replicas: int) -> Json:
    """The live workload of a former generation, to be applied with other replicas and nothing else: the spec that it
    was rendered from is not known any more."""
    metadata, spec = live["metadata"], live["spec"]
    annotations = metadata.get("annotations") or {}
    kept = {name: metadata[name] for name in ("name", "namespace", "labels", "ownerReferences") if name in metadata}
    ours = {name: annotations[name] for name in annotations if name.startswith(f"{constants.GROUP}/")}
    return {
        "apiVersion": constants.ENGINE_KINDS[kind],
        "kind": kind,
        "metadata": kept | ({"annotations": ours} if ours else {}),
        "spec": dict(spec) | {"replicas": replicas},
    }


def templates(workload: Mapping[str, Any]) -> dict[str, Json]:
    """Pod templates of a Deployment or LeaderWorkerSet; the first is that of the component's own pods."""
    groups = workload["spec"].get("leaderWorkerTemplate")
    if groups is None:
        return {"template": workload["spec"]["template"]}
    return {name: groups[name] for name in ("leaderTemplate", "workerTemplate")}


def _with_templates(desired: Json, source: Mapping[str, Any], live: Mapping[str, Any]) -> Json:
    """`desired` with the templates of `source`, whose labels are the live ones except for our own three: a label that
    only a newer operator adds must not replace pods."""
    wanted, given, found = templates(desired), templates(source), templates(live)
    kept = {name: _template(wanted[name], given[name], found[name]) for name in wanted}
    spec = desired["spec"]
    if "leaderWorkerTemplate" in spec:
        return desired | {"spec": spec | {"leaderWorkerTemplate": spec["leaderWorkerTemplate"] | kept}}
    return desired | {"spec": spec | kept}


def _template(desired: Json, template: Json, live: Json) -> Json:
    ours = desired["metadata"]["labels"]
    labels = dict(live["metadata"].get("labels", {})) | {k: ours[k] for k in _OWN_LABELS if k in ours}
    metadata = {"labels": labels}
    annotations = template["metadata"].get("annotations")
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": template["spec"]}


def edited_by_hand(live: Mapping[str, Any]) -> bool:
    """Whether anybody but us owns a part of the pod spec. (`kubectl rollout restart` owns only an annotation.)"""
    return any(others_template(entry) for entry in live["metadata"].get("managedFields", ()))


def others_template(entry: Mapping[str, Any]) -> bool:
    """Whether this entry of `managedFields` says that somebody else owns a part of the pod spec."""
    if entry.get("manager") == constants.FIELD_MANAGER and entry.get("operation") == "Apply":
        return False
    spec = entry.get("fieldsV1", {}).get("f:spec", {})
    groups = spec.get("f:leaderWorkerTemplate", {})
    owned = (spec.get("f:template", {}), groups.get("f:leaderTemplate", {}), groups.get("f:workerTemplate", {}))
    return any("f:spec" in template for template in owned)
