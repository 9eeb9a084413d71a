"""Engines over several nodes: one group of pods an engine, by LeaderWorkerSet.

The leader is the engine pod as ever; the workers run its other ranks without an API server and join it by its name.

Sources: leaderworkerset.x-k8s.io/v1 (it sets LWS_LEADER_ADDRESS and LWS_WORKER_INDEX in every container); vLLM 0.32.0
`config/parallel.py` (nnodes, node_rank, master_addr) and `entrypoints/cli/serve.py` (`run_headless`: ranks above 0 need
`vllm serve --headless`, which the plain API server does not know).
"""

from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.ports import on_host_network, ranks_port
from kvcachepool.render import metadata
from kvcachepool.render.deployment import Workload, deployment
from kvcachepool.render.hashing import content_hash

Json = dict[str, Any]

KIND: Final = "LeaderWorkerSet"
_SERVER: Final = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
_WORKER: Final = ["vllm", "serve", "--headless"]
_ONLY_LEADER: Final = ("startupProbe", "readinessProbe", "livenessProbe", "ports", "lifecycle")


def leader_worker_set(pool: KVCachePool, workload: Workload) -> Json:
    """The engines' workload as groups of `nodesPerEngine` pods."""
    plain = deployment(pool, workload)
    strategy = workload.strategy["rollingUpdate"]
    template = plain["spec"]["template"]
    leader, worker = _leader(pool, template), _worker(pool, template)
    hashes = plain["metadata"]["annotations"] | {constants.ANNOTATION_TEMPLATE: content_hash([leader, worker])}
    return {
        "apiVersion": constants.ENGINE_KINDS[KIND],
        "kind": KIND,
        "metadata": plain["metadata"] | {"annotations": hashes},
        "spec": {
            "replicas": workload.replicas,
            # A rank that is lost ends the others' collective calls: the whole engine starts anew.
            "leaderWorkerTemplate": {
                "size": pool.spec.engines.nodes_per_engine,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": dict(strategy)},
        },
    }


def _member(pool: KVCachePool, template: Json) -> Json:
    main, *others = template["spec"]["containers"]
    args = [
        *main["args"],
        "--distributed-executor-backend=mp",
        f"--nnodes={pool.spec.engines.nodes_per_engine}",
        "--node-rank=$(LWS_WORKER_INDEX)",
        "--master-addr=$(LWS_LEADER_ADDRESS)",
        f"--master-port={ranks_port(pool)}",
    ]
    return template | {"spec": template["spec"] | {"containers": [main | {"args": args}, *others]}}


def _leader(pool: KVCachePool, template: Json) -> Json:
    """On the node's network its ranks' port is one more that no two pods of a node may have."""
    member = _member(pool, template)
    if not on_host_network(pool):
        return member
    main, *others = member["spec"]["containers"]
    ports = [*main["ports"], {"name": "ranks", "containerPort": ranks_port(pool), "protocol": "TCP"}]
    return member | {"spec": member["spec"] | {"containers": [main | {"ports": ports}, *others]}}


def _worker(pool: KVCachePool, template: Json) -> Json:
    """Without probes and port: it answers nobody, and its component keeps it out of every Service and every count of
    engines. It has the schema label: its ranks read and write blocks."""
    member = _member(pool, template)
    main, *others = member["spec"]["containers"]
    assert main["command"] == _SERVER
    model, *rest = main["args"]
    container = {name: value for name, value in main.items() if name not in _ONLY_LEADER}
    container |= {"command": _WORKER, "args": [model.removeprefix("--model="), *rest]}
    labels = metadata.labels(pool, constants.WORKER, member["metadata"]["labels"][constants.LABEL_SCHEMA])
    return member | {
        "metadata": member["metadata"] | {"labels": labels},
        "spec": member["spec"] | {"containers": [container, *others]},
    }
