"""What the operator would apply for a manifest, without a cluster."""

from collections.abc import Iterator

import yaml
from pydantic import ValidationError

from kvcachepool import constants
from kvcachepool.api.parse import Invalid, parse_pool
from kvcachepool.documents import DocumentError, load
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings

STARTED = Observed(
    pods=(PodFacts(name="master", uid="", component=constants.MASTER, digest="", ready=True),),
    leader_worker_sets=True,
)
"""What a plan without a cluster stands on: the store is taken as started, so that engines are part of it, and
LeaderWorkerSet as installed."""


class _Dumper(yaml.SafeDumper):
    """Repeats shared parts instead of writing anchors, which people do not like to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


class PreviewError(ValueError):
    """The manifest cannot be planned; the message has one finding a line."""


def preview(manifest: str, settings: Settings, *, namespace: str = "default") -> Iterator[str]:
    """YAML documents, in the order in which they are applied, for every KVCachePool in `manifest`.

    Raises PreviewError when the text is not YAML, holds no pool, or a pool has findings.
    """
    try:
        documents = load(manifest)
    except DocumentError as error:
        raise PreviewError(str(error)) from error
    pools = [d for d in documents if isinstance(d, dict) and d.get("kind") == constants.KIND]
    if not pools:
        raise PreviewError(f"found no {constants.KIND} of {constants.API_VERSION}")
    for raw in pools:
        metadata = raw.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise PreviewError("metadata.name is required, found none")
        try:
            parsed = parse_pool(raw | {"metadata": {"namespace": namespace, "uid": "preview", **metadata}})
        except ValidationError as error:  # an API server lets no such metadata in
            found = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in found["loc"])
            raise PreviewError(f"metadata.{field}: {found['msg']}, found {str(found['input'])[:64]!r}") from error
        if isinstance(parsed, Invalid):
            raise PreviewError("\n".join(finding.message for finding in parsed.findings))
        plan = make_plan(parsed, STARTED, settings)
        if plan.findings:
            raise PreviewError("\n".join(finding.message for finding in plan.findings))
        for obj in plan.objects:
            yield yaml.dump(dict(obj), Dumper=_Dumper, sort_keys=False, width=4096)
