"""Mooncake Store: a master (the index), store members (the memory) and a client in every engine rank.

Sources: Mooncake 0.3.13.post1 (`mooncake_master --helpfull`, `mooncake/mooncake_config.py`,
`mooncake/mooncake_store_service.py`) and vLLM 0.33.0 (`vllm/distributed/mooncake_store.py`,
`kv_connector/v1/mooncake/store/`).
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import CONFIG_DIR, EngineParts
from kvcachepool.backends.mooncake_master import client_address, client_env, client_inputs, wait_address
from kvcachepool.backends.mooncake_pods import apart_seconds, master_workload, store_memory, store_workload
from kvcachepool.backends.mooncake_transport import device_names, protocol, transport_env
from kvcachepool.checks.memory import check_limit
from kvcachepool.compat.layouts import block_outermost_layout
from kvcachepool.findings import Finding
from kvcachepool.quantity import align_up, parse_bytes
from kvcachepool.render.deployment import Workload
from kvcachepool.render.memory import Term
from kvcachepool.render.network import transport_inputs
from kvcachepool.render.pod import env, env_field
from kvcachepool.render.service import service
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.declared import declared_schema
from kvcachepool.settings import Settings

_CONNECTOR: Final = "MooncakeStoreConnector"
_CONFIG_FILE: Final = "mooncake.json"
SEGMENT_ALIGNMENT: Final = 4 * 2**20
"""The store hands memory out in 4 MiB slabs; a segment is rounded up to whole ones."""


def segment_bytes(pool: KVCachePool) -> int:
    """Size of one segment, aligned."""
    return align_up(parse_bytes(pool.store.segment_size), SEGMENT_ALIGNMENT)


class MooncakeBackend:
    """`spec.backend.mooncake`."""

    name = "mooncake"
    shared = True

    def schema(self, pool: KVCachePool) -> CacheSchema:
        """The key of the connector holds ranks but no sizes, types, layout or revision: all of them are here."""
        declared = pool.spec.schema_
        return declared_schema(
            pool,
            connector=_CONNECTOR,
            store_version=self._version(pool),
            kv_layout=declared.kv_layout
            or block_outermost_layout(pool.spec.engines.version, declared.attention_backend),
        )

    def check(self, pool: KVCachePool) -> Iterable[Finding]:
        """Memory limits of the store pods, and settings that the connector refuses."""
        if pool.store.mode == "Dedicated":
            yield from check_limit(
                "spec.store.resources", pool.store.resources, store_memory(pool, segment_bytes(pool))
            )
        yield from _check_efa(pool)
        for variable in pool.spec.engines.env:
            if variable.name in {
                "PYTORCH_CUDA_ALLOC_CONF",
                "PYTORCH_ALLOC_CONF",
            } and "expandable_segments:True" in (variable.value or ""):
                yield Finding(
                    "InvalidSpec",
                    f"spec.engines.env: {variable.name} has expandable_segments:True, which the engine refuses "
                    "together with a shared cache; remove it",
                    "spec.engines.env",
                )

    def workloads(self, pool: KVCachePool, settings: Settings) -> Sequence[Workload]:
        """The master first: everything else registers with it. None is made where one exists already."""
        version = self._version(pool)
        made = [] if pool.store.master.external is not None else [master_workload(pool, settings, version)]
        if pool.store.mode == "Dedicated":
            made.append(store_workload(pool, settings, version, segment=segment_bytes(pool)))
        return made

    def services(self, pool: KVCachePool) -> Sequence[dict[str, Any]]:
        """The master's stable name; of several masters only the leader is ready."""
        if pool.store.master.external is not None:
            return ()
        ports = {"rpc": constants.MASTER_RPC_PORT, "http": constants.MASTER_HTTP_PORT}
        return (service(pool, constants.MASTER, constants.MASTER, ports),)

    def engine(self, pool: KVCachePool, digest: str) -> EngineParts:
        """Connector, client configuration and memory.

        `cache_prefix` is the digest: an engine of any other schema looks for other keys and misses. Loads and
        lookups are asynchronous, so that a slow store does not hold up requests that need nothing from it.
        """
        embedded = pool.store.mode == "Embedded"
        segment = segment_bytes(pool) if embedded else 0
        buffer = parse_bytes(pool.store.local_buffer_size)
        ranks = pool.spec.ranks_per_pod
        config = {
            "metadata_server": "P2PHANDSHAKE",
            "master_server_address": client_address(pool),
            "protocol": protocol(pool),
            "device_name": device_names(pool),
            "mode": "embedded" if embedded else "standalone-store",
            "global_segment_size": segment,
            "local_buffer_size": buffer,
        }
        memory = [Term("transfer buffer", buffer, ranks)]
        if embedded:
            memory.insert(0, Term("segment", segment, ranks))
        return EngineParts(
            kv_transfer_config={
                "kv_connector": _CONNECTOR,
                "kv_role": "kv_both",
                "kv_load_failure_policy": constants.FAILURE_POLICY,
                "kv_connector_extra_config": {
                    "load_async": True,
                    "lookup_async": True,
                    "cache_prefix": digest,
                },
            },
            env=(
                env("MOONCAKE_CONFIG_PATH", f"{CONFIG_DIR}/{_CONFIG_FILE}"),
                env_field("VLLM_HOST_IP", "status.podIP"),
                *client_env(pool),
                *transport_env(pool),
            ),
            files={_CONFIG_FILE: json.dumps(config, sort_keys=True)},
            memory=tuple(memory),
            wait_for=wait_address(pool),
            apart_seconds=apart_seconds(pool) if embedded else 0,
            inputs={
                "config": config,
                "digest": digest,
                "transport": transport_inputs(pool),
                **client_inputs(pool),
            },
        )

    def segments(self, pool: KVCachePool) -> tuple[int, int]:
        """One segment a store pod, or one a rank of each engine."""
        if pool.store.mode == "Dedicated":
            return pool.store.replicas, segment_bytes(pool)
        return pool.spec.engines.replicas * pool.spec.schema_.parallelism.world_size, segment_bytes(pool)

    @staticmethod
    def _version(pool: KVCachePool) -> str:
        assert pool.spec.backend.mooncake is not None
        return pool.spec.backend.mooncake.version


def _check_efa(pool: KVCachePool) -> Iterable[Finding]:
    """Mooncake for EFA is a wheel of its own, which the operator's images do not have."""
    rdma = pool.spec.transport.active_rdma
    if rdma is None or rdma.provider != "EFA":
        return
    images = {"spec.engines.image": pool.spec.engines.image}
    if pool.store.mode == "Dedicated":
        images["spec.store.image"] = pool.store.image
    for field, image in images.items():
        if image is None:
            yield Finding(
                "InvalidSpec",
                f"{field}: found none, expected an image with Mooncake's EFA build, since "
                "spec.transport.rdma.provider is EFA; the operator's own images have none",
                field,
            )
