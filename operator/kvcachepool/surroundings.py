"""What all pools share: the nodes, and the cluster's own rows of the compatibility tables."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kvcachepool.cluster import ApiError, Cluster
from kvcachepool.compat.tables import BUILT_IN, TableError, Tables, parse_tables
from kvcachepool.constants import COMPATIBILITY_CONFIG_MAP
from kvcachepool.facts import Observed
from kvcachepool.nodecache import NodeCache

logger = logging.getLogger(__name__)

NOT_ALLOWED: Final = (401, 403, 404)
"""Answers that say that something may not be read, or is not there."""


class Surroundings:
    """Kept by `refresh`, which the relist calls, and between its rounds by the watch of nodes."""

    def __init__(self, cluster: Cluster, namespace: str, changed: Callable[[], None]) -> None:
        """`namespace` is the operator's own, empty outside a cluster; `changed` is called when pools must be looked at
        anew."""
        self._cluster = cluster
        self._namespace = namespace
        self._changed = changed
        self._tables = BUILT_IN
        self._tables_error = ""
        self._rows: Mapping[str, str] = {}
        self.leader_worker_sets = False
        """Whether that kind is served, as of the last refresh."""
        self.nodes = NodeCache()

    @property
    def tables_error(self) -> str:
        """Why the cluster's own rows are ignored; empty when they are not."""
        return self._tables_error

    def seen_by(self, observed: Observed) -> Observed:
        """What a pass observed of its pool, with what all pools share."""
        return replace(
            observed,
            nodes=self.nodes.facts,
            tables=self._tables,
            tables_error=self._tables_error,
            leader_worker_sets=self.leader_worker_sets,
        )

    def node_event(self, change: str | None, raw: Mapping[str, Any]) -> None:
        """Takes an event of the watch of nodes."""
        if self.nodes.event(change, raw):
            self._changed()

    async def refresh(self) -> None:
        """Reads both anew. What may not be read is a fact; raises ApiError for any other trouble."""
        changed = False
        try:
            for refresh in (self._refresh_nodes, self._refresh_tables, self._refresh_groups):
                changed |= await refresh()
        finally:  # what was read before the trouble is no news in the next round
            if changed:
                self._changed()

    async def look_for_groups(self) -> bool:
        """Whether LeaderWorkerSet has come, or gone, since the last look. Raises ApiError."""
        changed = await self._refresh_groups()
        if changed:
            self._changed()
        return changed

    async def _refresh_groups(self) -> bool:
        before, self.leader_worker_sets = self.leader_worker_sets, await self._cluster.served("LeaderWorkerSet")
        return before != self.leader_worker_sets

    async def _refresh_nodes(self) -> bool:
        try:
            raws, version = await self._cluster.list("Node", None)
        except ApiError as error:
            if error.status not in NOT_ALLOWED:
                raise
            return self.nodes.forbid()
        return self.nodes.replace(raws, version)

    async def _refresh_tables(self) -> bool:
        if not self._namespace:
            return False
        try:
            found = await self._cluster.get("ConfigMap", self._namespace, COMPATIBILITY_CONFIG_MAP)
        except ApiError as error:
            if error.status not in NOT_ALLOWED:
                raise
            found = None
        rows = dict((found or {}).get("data") or {})
        if rows == self._rows:
            return False
        self._rows = rows
        self._tables, self._tables_error = read_tables(rows)
        if self._tables_error:
            logger.warning(
                "ConfigMap %s/%s is ignored: %s", self._namespace, COMPATIBILITY_CONFIG_MAP, self._tables_error
            )
        return True


def read_tables(rows: Mapping[str, str]) -> tuple[Tables, str]:
    """The built-in tables with these rows before them; rows with any fault are ignored as a whole, since half of them
    could say the opposite of what was meant."""
    try:
        return parse_tables(rows).over(BUILT_IN), ""
    except TableError as error:
        return BUILT_IN, str(error)
