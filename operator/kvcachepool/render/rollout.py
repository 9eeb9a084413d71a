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
    template = live["spec"]["template"]
    if found.get(constants.ANNOTATION_TEMPLATE) == wanted[constants.ANNOTATION_TEMPLATE]:
        return _with_template(desired, desired["spec"]["template"], template), False
    if edited_by_hand(live):
        return desired, False
    kept = _with_template(desired, template, template)
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


def as_it_runs(live: Mapping[str, Any], replicas: int) -> Json:
    """The live Deployment of a former generation, to be applied with other replicas and nothing else: the spec that it
    was rendered from is not known any more."""
    metadata, spec = live["metadata"], live["spec"]
    annotations = metadata.get("annotations") or {}
    kept = {name: metadata[name] for name in ("name", "namespace", "labels", "ownerReferences") if name in metadata}
    ours = {name: annotations[name] for name in annotations if name.startswith(f"{constants.GROUP}/")}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": kept | ({"annotations": ours} if ours else {}),
        "spec": dict(spec) | {"replicas": replicas},
    }


def _with_template(desired: Json, template: Mapping[str, Any], live_template: Mapping[str, Any]) -> Json:
    """`desired` with that template, whose labels are the live ones except for our own three: a label that only
    a newer operator adds must not replace pods."""
    ours = desired["spec"]["template"]["metadata"]["labels"]
    labels = dict(live_template["metadata"].get("labels", {})) | {k: ours[k] for k in _OWN_LABELS if k in ours}
    metadata = {"labels": labels}
    annotations = template["metadata"].get("annotations")
    if annotations:
        metadata["annotations"] = annotations
    return desired | {"spec": desired["spec"] | {"template": {"metadata": metadata, "spec": template["spec"]}}}


def edited_by_hand(live: Mapping[str, Any]) -> bool:
    """Whether anybody but us owns a part of the pod spec. (`kubectl rollout restart` owns only an annotation.)"""
    for entry in live["metadata"].get("managedFields", ()):
        if entry.get("manager") == constants.FIELD_MANAGER and entry.get("operation") == "Apply":
            continue
        template = entry.get("fieldsV1", {}).get("f:spec", {}).get("f:template", {})
        if "f:spec" in template:
            return True
    return False
