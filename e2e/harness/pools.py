"""Pools of tiny engines: the real vLLM on the CPU with a model of random weights that the image carries."""

from __future__ import annotations

from typing import Any

from e2e.harness.kube import Json, Kube
from kvcachepool import constants
from kvcachepool.compat.pins import PINS

ENGINE_ARGS = [
    "--enforce-eager",
    "--distributed-executor-backend=uni",
    "--max-model-len=16384",
    "--max-num-seqs=4",
    "--max-num-batched-tokens=8192",
]
CACHE_ARG = "--kv-cache-memory-bytes=268435456"
"""Room for 65,536 tokens. The usual variable, VLLM_CPU_KVCACHE_SPACE, takes whole GiB only."""
ENGINE_ENV = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
}


def tiny_pool(images: dict[str, str], name: str, namespace: str, **spec: Any) -> Json:
    """Two engines and one store pod of 512 MiB; `spec` replaces whole top-level fields."""
    _, tag = images["engine-cpu"].rsplit(":", 1)
    body: Json = {
        "model": {"id": "tiny", "revision": "1", "source": {"image": {"path": "/models/tiny"}}},
        "schema": {"dtype": "float32"},
        "backend": {"mooncake": {"version": PINS.mooncake_version}},
        "store": tiny_store(images),
        "cuda": {"version": "12"},  # what the pretended driver runs
        "engines": tiny_engines(images, version=tag.split("-")[0]),
        "verification": {"intervalSeconds": 60},
    }
    body |= spec
    return {
        "apiVersion": "kvcachepool.io/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {key: value for key, value in body.items() if value is not None},
    }


def tiny_store(images: dict[str, str], **fields: Any) -> Json:
    """A store that fits a laptop."""
    return {
        "segmentSize": "512Mi",
        "localBufferSize": "64Mi",
        "image": images["mooncake"],
        "imagePullPolicy": "Never",
        "master": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}},
        **fields,
    }


def tiny_engines(images: dict[str, str], *, version: str, **fields: Any) -> Json:
    """Engines that ask for one (pretended) GPU each and compute on the CPU."""
    return {
        "replicas": 2,
        "version": version,
        "image": images["engine-cpu"],
        "imagePullPolicy": "Never",
        "engineMemory": "2Gi",
        "shmSize": "256Mi",
        "startupSeconds": 300,
        "shutdownSeconds": 10,
        "preflight": False,  # it would find neither a GPU driver nor CUDA
        "extraArgs": [*ENGINE_ARGS, CACHE_ARG],
        "env": [{"name": key, "value": value} for key, value in ENGINE_ENV.items()],
        **fields,
    }


def engine_deployments(kube: Kube, namespace: str, pool: str) -> list[Json]:
    """Deployments of the pool's engines, one for each generation, the oldest first."""
    selector = f"kvcachepool.io/pool={pool},kvcachepool.io/component=engine"
    found = kube.items("deployments", "-n", namespace, "-l", selector)
    return sorted(found, key=lambda item: item["metadata"]["creationTimestamp"])


def approve_restart(kube: Kube, namespace: str, pool: str) -> None:
    """Let the master be restarted for the edits that wait for it."""

    def pending() -> str:
        found = kube.pool(namespace, pool)
        seen = found["status"].get("observedGeneration") == found["metadata"]["generation"]
        return str(found["status"]["store"].get("pendingRestart", "")) if seen else ""

    approval = kube.wait("a restart of the master waits", pending, timeout=90)
    kube.run("annotate", "kvpool", pool, "-n", namespace, "--overwrite", f"{constants.ANNOTATION_APPROVE}={approval}")


def native_pool(images: dict[str, str], name: str, namespace: str, **engines: Any) -> Json:
    """One engine whose cache is 1 GiB of host memory; as it computes on the CPU, it asks for no device."""
    _, tag = images["engine-cpu"].rsplit(":", 1)
    fields = {"replicas": 1, "gpu": {"resourceName": ""}, "preflight": True, "extraArgs": ENGINE_ARGS} | engines
    return tiny_pool(
        images, name, namespace,
        backend={"native": {"cpuBytes": "1Gi"}},
        store=None,
        engines=tiny_engines(images, version=tag.split("-")[0], **fields),
    )  # fmt: skip
