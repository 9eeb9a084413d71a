"""Which installation of the operator owns a namespace, when a cluster-wide and a namespaced one overlap.

Two operators on one pool would undo each other's status and templates for ever (dask-kubernetes#916). The rule:
a namespaced installation writes a Lease with a fixed name into each namespace it watches; every other
installation leaves the pools of that namespace alone while the Lease is renewed, and says so. A cluster-wide
installation writes no such Lease. Nothing is written to the pools.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kvcachepool.cluster import ApiError, Cluster
from kvcachepool.rbac import CLAIM_LEASE

logger = logging.getLogger(__name__)

LEASE_SECONDS = 120
"""Least duration of a claim; claims are renewed by passes, so rare passes make it longer."""
REFRESH_SECONDS = 40.0
"""How long an answer is believed, and the least time between two renewals."""


@dataclass(slots=True)
class _Seen:
    holder: str
    renewed: str
    duration: float
    changed_at: float
    """Our clock when `renewed` was first seen: clocks of two machines are never compared."""
    checked_at: float


class Claims:
    """Answers whose a namespace is; renews our claims on the way, in namespaced installations."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        installation: str,
        claiming: bool,
        pass_seconds: float = 30.0,
        on_conflict: Callable[[str, bool], None] = lambda _namespace, _conflict: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._installation = installation
        self._claiming = claiming
        self._duration = max(LEASE_SECONDS, int(4 * pass_seconds))
        self._on_conflict = on_conflict
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._conflicts: dict[str, str] = {}

    async def other_owner(self, namespace: str) -> str:
        """The other installation that owns the namespace's pools; empty when they are ours to work on.

        Raises ApiError when that cannot be found out; without the right to read Leases there is no claim.
        """
        if not self._installation:  # a development run claims nothing and respects nothing
            return ""
        seen = self._seen.get(namespace)
        now = self._clock()
        if seen is None or now - seen.checked_at >= REFRESH_SECONDS:
            seen = await self._look(namespace, seen, now)
            self._seen[namespace] = seen
        other = seen.holder if self._is_held_by_other(seen, now) else ""
        self._report(namespace, other)
        return other

    def _is_held_by_other(self, seen: _Seen, now: float) -> bool:
        return seen.holder not in ("", self._installation) and now - seen.changed_at < seen.duration

    async def _look(self, namespace: str, before: _Seen | None, now: float) -> _Seen:
        try:
            lease = await self._cluster.get("Lease", namespace, CLAIM_LEASE)
        except ApiError as error:
            if error.status != 403:
                raise
            lease = None
        spec = (lease or {}).get("spec") or {}
        holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        changed_at = now
        if before is not None and (before.holder, before.renewed) == (holder, renewed):
            changed_at = before.changed_at
        seen = _Seen(holder, renewed, spec.get("leaseDurationSeconds") or LEASE_SECONDS, changed_at, now)
        if not self._claiming or self._is_held_by_other(seen, now):
            return seen
        return await self._claim(namespace, lease, now)

    async def _claim(self, namespace: str, lease: dict[str, Any] | None, now: float) -> _Seen:
        """Writes our claim; a rival who was faster is seen at the next look, as the 409 is retried."""
        renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": self._installation, "leaseDurationSeconds": self._duration, "renewTime": renewed}
        if lease is None:
            metadata = {"name": CLAIM_LEASE, "namespace": namespace}
            await self._cluster.create(
                {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            )
        else:
            await self._cluster.update({**lease, "kind": "Lease", "spec": spec})
        return _Seen(self._installation, renewed, self._duration, now, now)

    def _report(self, namespace: str, other: str) -> None:
        if self._conflicts.get(namespace, "") == other:
            return
        if other:
            logger.warning("namespace %s belongs to the installation %s: its pools are left alone", namespace, other)
        else:
            logger.info("namespace %s is ours again", namespace)
        self._conflicts[namespace] = other
        self._on_conflict(namespace, bool(other))
