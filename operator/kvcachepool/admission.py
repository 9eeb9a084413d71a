"""The webhook that completes pods which ask for it. kopf serves it; what it decides is in `inject`.

Every replica answers, whoever leads: it reads pools from its own cache and writes nothing.
"""

import logging
from typing import Any

import kopf

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import Invalid, parse_pool
from kvcachepool.inject import InjectionRefusedError, complete
from kvcachepool.metrics import Metrics
from kvcachepool.schema.member import Object
from kvcachepool.watchcache import WatchCache
from kvcachepool.webhook_tls import WebhookTls

logger = logging.getLogger(__name__)

HANDLER = "inject"
"""Also the path of its URL."""


class Admission:
    """Answers for pods with the label `kvcachepool.io/inject`."""

    def __init__(self, cache: WatchCache, metrics: Metrics, tls: WebhookTls, *, port: int, address: str = "") -> None:
        self._cache = cache
        self._metrics = metrics
        self._tls = tls
        self._port = port
        self._address = address

    def install(self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings) -> None:
        """Adds handler and server to an operator. The webhook configuration is the chart's, never kopf's."""
        settings.admission.managed = None
        settings.admission.server = kopf.WebhookServer(
            addr=self._address or None,
            port=self._port,
            host=self._address or None,
            context=self._tls.context,
            certfile=self._tls.certificate_file,
            pkeyfile=self._tls.key_file,
        )

        async def mutate(body: Any, patch: Any, **_: Any) -> None:
            pod = dict(body)
            try:
                completed = self.answer(pod)
            except InjectionRefusedError as refusal:
                self._metrics.injections.labels("refused").inc()
                raise kopf.AdmissionError(str(refusal), code=422) from refusal
            self._metrics.injections.labels("completed").inc()
            for part in ("metadata", "spec"):
                for name, value in completed[part].items():
                    if value != pod[part].get(name):
                        patch.setdefault(part, {})[name] = value

        kopf.on.mutate("", "v1", "pods", operations={"CREATE"}, id=HANDLER, registry=registry)(mutate)

    def answer(self, pod: Object) -> Object:
        """The completed pod. Raises InjectionRefusedError."""
        return complete(pod, self._pool(pod))

    def _pool(self, pod: Object) -> KVCachePool:
        metadata = pod["metadata"]
        namespace = metadata.get("namespace", "")
        label = (metadata.get("labels") or {}).get(constants.LABEL_POOL, "")
        if not label:
            raise InjectionRefusedError(
                f"label {constants.LABEL_INJECT} asks to join a pool, and the label {constants.LABEL_POOL} that names "
                "it is missing"
            )
        raw = self._cache.pool_of_label((namespace, label))
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            there = sorted(name for where, name in self._cache.pools() if where == namespace)
            raise InjectionRefusedError(
                f"label {constants.LABEL_POOL} names the pool {label}, which does not exist in namespace {namespace} "
                f"(there: {', '.join(there) or 'none'})"
            )
        pool = parse_pool(raw)
        if isinstance(pool, Invalid):
            raise InjectionRefusedError(
                f"pool {label} takes no members: its spec is not valid ({pool.findings[0].message})"
            )
        return pool
