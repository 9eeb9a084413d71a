"""Keeps the RDMA shared device plugin as long as any pool asks for it.

It belongs to no pool, so that no pool can own it: a level-triggered pass over all pools decides. Its owner is the
an object of the installation's chart, so that it goes with the installation, too, without a finalizer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from kvcachepool.cluster import ApiError, Cluster, NotLeaderError
from kvcachepool.facts import Object
from kvcachepool.rbac import DEVICE_PLUGIN_OWNER
from kvcachepool.render.device_plugin import NAME, DevicePluginPlan, Key, objects, wishes
from kvcachepool.render.hashing import content_hash
from kvcachepool.settings import Settings

logger = logging.getLogger(__name__)

_RECHECK_SECONDS: Final = 300.0
_SETTLING_SECONDS: Final = 1.0
_KINDS: Final = ("DaemonSet", "ConfigMap")
_OFF: Final = (
    "spec.transport.rdma.devicePlugin: this installation runs no device plugin (chart value rdma.devicePlugin.enabled)."
)


class DevicePlugins:
    """`forever` runs beside the passes; `trouble` tells a pass what it has to say about its pool."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        pools: Callable[[], Iterable[Object]],
        changed: Callable[[Key], None],
        *,
        leads: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._pools = pools
        self._changed = changed
        self._leads = leads
        self._wake = asyncio.Event()
        self._done = ""
        self._trouble: dict[Key, str] = {}

    def wake(self) -> None:
        """A pool has changed."""
        self._wake.set()

    def trouble(self, key: Key) -> str:
        """Why that pool does not get its device plugin; empty when it does, or asks for none."""
        return self._trouble.get(key, "")

    async def forever(self) -> None:
        """Until it is cancelled. Trouble is shown in the pools that ask for it, and tried again."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _RECHECK_SECONDS)
                await asyncio.sleep(_SETTLING_SECONDS)
            rechecks = not self._wake.is_set()
            self._wake.clear()
            if self._leads():
                try:
                    await self.once(recheck=rechecks)
                except Exception:
                    self._done = ""
                    logger.exception("the device plugin could not be kept; next try in %.0f s", _RECHECK_SECONDS)
            else:
                self._done = ""  # the next leader may do otherwise

    async def once(self, *, recheck: bool = True) -> None:
        """One pass. Without `recheck` nothing is asked of the API server unless pools ask for something else."""
        plan = wishes(self._pools())
        trouble = dict(plan.conflicts)
        asking = {wish.pool for wish in plan.wishes}
        if not self._settings.device_plugin_account or not self._settings.lease_namespace:
            trouble = dict.fromkeys({*asking, *trouble}, _OFF)
        elif recheck or self._done != content_hash(repr(plan.wishes)):
            self._done = ""
            try:
                await self._apply(plan)
                self._done = content_hash(repr(plan.wishes))
            except (ApiError, NotLeaderError) as error:
                logger.warning("the device plugin could not be kept: %s", error)
                trouble |= dict.fromkeys(asking, f"The device plugin could not be applied: {error}")
                asyncio.get_running_loop().call_later(30, self.wake)
        changed = {key for key in {*trouble, *self._trouble} if trouble.get(key) != self._trouble.get(key)}
        self._trouble = trouble
        for key in changed:
            self._changed(key)

    async def _apply(self, plan: DevicePluginPlan) -> None:
        namespace = self._settings.lease_namespace
        if not plan.wishes:
            for kind in _KINDS:
                live = await self._cluster.get(kind, namespace, NAME)
                if live is not None:
                    await self._cluster.delete(kind, namespace, NAME, live["metadata"]["uid"])
                    logger.info("removed %s %s/%s: no pool asks for it", kind, namespace, NAME)
            return
        live = await self._cluster.get("ConfigMap", namespace, DEVICE_PLUGIN_OWNER)
        if live is None:
            raise ApiError(404, f"ConfigMap {namespace}/{DEVICE_PLUGIN_OWNER} does not exist", retry=False)
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": DEVICE_PLUGIN_OWNER,
            "uid": live["metadata"]["uid"],
            "controller": False,
            "blockOwnerDeletion": False,
        }
        for obj in objects(plan, self._settings, owner=owner):
            await self._cluster.apply(obj)
