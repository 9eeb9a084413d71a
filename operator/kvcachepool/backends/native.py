"""CPU offload inside each engine. Nothing is shared between pods, and nothing else has to run.

An engine that computes on the CPU has its cached blocks in host memory anyway, and its offloading connector refuses
to start there; it gets the memory as its cache and no connector.

Source: vLLM 0.33.0, `vllm/distributed/kv_transfer/kv_connector/v1/offloading_connector.py` (`cpu_bytes_to_use` is the
total over all ranks of one engine), `v1/kv_offload/cpu/spec.py` (CUDA-alike and XPU only),
`v1/kv_offload/cpu/shared_offload_region.py` (all of it is one file in /dev/shm, and an engine that finds less free
space there does not start: vllm#50094, vllm#50358) and `envs.py` (VLLM_CPU_KVCACHE_SPACE: whole GiB).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import EngineParts
from kvcachepool.findings import Finding
from kvcachepool.quantity import parse_bytes
from kvcachepool.render.deployment import Workload
from kvcachepool.render.memory import Term
from kvcachepool.render.pod import env
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.declared import declared_schema
from kvcachepool.schema.member import NO_CONNECTOR
from kvcachepool.settings import Settings

_CONNECTOR = "OffloadingConnector"
_GIB = 2**30


def _on_cpu(pool: KVCachePool) -> bool:
    return pool.spec.engines.gpu.resource_name == ""


class NativeBackend:
    """`spec.backend.native`."""

    name = "native"
    shared = False

    def schema(self, pool: KVCachePool) -> CacheSchema:
        """Blocks stay in their engine, but members still agree, so that a later shared backend finds them alike."""
        connector = NO_CONNECTOR if _on_cpu(pool) else _CONNECTOR
        return declared_schema(pool, connector=connector, store_version=None, kv_layout=pool.spec.schema_.kv_layout)

    def check(self, pool: KVCachePool) -> Iterable[Finding]:  # noqa: ARG002
        """The API checks all there is."""
        return ()

    def workloads(self, pool: KVCachePool, settings: Settings) -> Sequence[Workload]:  # noqa: ARG002
        """None."""
        return ()

    def services(self, pool: KVCachePool) -> Sequence[dict[str, Any]]:  # noqa: ARG002
        """None."""
        return ()

    def engine(self, pool: KVCachePool, digest: str) -> EngineParts:  # noqa: ARG002
        """The connector and its memory."""
        size = parse_bytes(self._cpu_bytes(pool))
        if _on_cpu(pool):
            space = -(-size // _GIB)
            return EngineParts(
                kv_transfer_config=None,
                env=(env("VLLM_CPU_KVCACHE_SPACE", str(space)),),
                memory=(Term("CPU cache", space * _GIB),),
                inputs={"cpuBytes": size},
            )
        return EngineParts(
            kv_transfer_config={
                "kv_connector": _CONNECTOR,
                "kv_role": "kv_both",
                "kv_load_failure_policy": constants.FAILURE_POLICY,
                "kv_connector_extra_config": {"cpu_bytes_to_use": size},
            },
            memory=(Term("CPU cache", size),),
            shared_memory=size,
            inputs={"cpuBytes": size},
        )

    def segments(self, pool: KVCachePool) -> tuple[int, int]:  # noqa: ARG002
        """No store, no segments."""
        return 0, 0

    @staticmethod
    def _cpu_bytes(pool: KVCachePool) -> str:
        assert pool.spec.backend.native is not None
        return pool.spec.backend.native.cpu_bytes
