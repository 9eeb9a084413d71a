"""Every name that is written to or read from the cluster, in one place.

Labels and annotations live on objects the operator makes (and labels on pods that join a pool);
nothing is ever written to a KVCachePool but its status.
"""

from typing import Final

GROUP: Final = "kvcachepool.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "KVCachePool"
PLURAL: Final = "kvcachepools"
SHORT_NAME: Final = "kvpool"

FIELD_MANAGER: Final = "kvcachepool-operator"
"""Server-side apply owner of children and status."""

LABEL_POOL: Final = f"{GROUP}/pool"
"""On every member pod and every child: the pool's label value (see names.pool_label)."""
LABEL_SCHEMA: Final = f"{GROUP}/schema"
"""On every engine pod: the 12-hex digest of its cache schema. Store pods keep the blocks of all schemas."""
LABEL_COMPONENT: Final = f"{GROUP}/component"
"""On every child: engine, store or master. The pool's Services select by it, so that no pod of a user's may have it."""

ANNOTATION_INPUTS: Final = f"{GROUP}/inputs-hash"
"""On a workload: hash of the parts of the pool's spec it was rendered from."""
ANNOTATION_TEMPLATE: Final = f"{GROUP}/template-hash"
"""On a workload: hash of its pod template as it was rendered."""

LABEL_NEGATIVE: Final = f"{GROUP}/negative"
"""On pods of the negative suite: the pool's label value. They are no members: nothing routes to them or counts them."""

LABEL_DRILL: Final = f"{GROUP}/drill"
"""On the pod that drills a pool: the pool's label value. It asks the engines, and the master which keys there are."""

LABEL_INJECT: Final = f"{GROUP}/inject"
"""On a user's pod: `"true"` asks the webhook to complete it."""
ANNOTATION_CONTAINER: Final = f"{GROUP}/container"
"""On a pod with several containers: the name of the engine's."""
ANNOTATION_INJECTED: Final = f"{GROUP}/injected"
"""On a completed pod: what was injected, as JSON."""
ANNOTATION_CUDA: Final = f"{GROUP}/cuda"
"""On the engines' Deployment: CUDA of the build that was chosen."""
ANNOTATION_PRODUCT: Final = f"{GROUP}/gpu-product"
"""On the engines' Deployment: the GPU that was chosen."""

ANNOTATION_APPROVE: Final = f"{GROUP}/approve-master-restart"
"""On a KVCachePool, set by the user: names the restart of the master that may happen (status.store.pendingRestart)."""

COMPATIBILITY_CONFIG_MAP: Final = "kvcachepool-compatibility"
"""A cluster's own rows of the compatibility tables, in the operator's namespace."""

ENGINE: Final = "engine"
WORKER: Final = "worker"
"""Pods of an engine beyond the first one, where it runs over several nodes."""
STORE: Final = "store"
MASTER: Final = "master"

PREFLIGHT_CONTAINER: Final = "preflight"
"""Init container of an engine pod; looks whether the engine can work in its image and on its node."""
WAIT_CONTAINER: Final = "wait-for-master"
"""Init container of an engine pod; ends when the master's RPC port accepts a connection."""

FAILURE_POLICY: Final = "recompute"
"""What an engine does with a block that it cannot load, always said explicitly: vLLM's own default became `fail`, HTTP
500 for the request (vllm#34896). The table of known faults says with which versions it does not hold."""

ENGINE_KINDS: Final = {"Deployment": "apps/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}
"""What a generation of engines can be, with the API version: engines on one node each, or over several."""
ENGINE_PORT: Final = 8000
RANKS_PORT: Final = 29501
"""Where the ranks of an engine over several nodes meet."""
MASTER_RPC_PORT: Final = 50051
MASTER_HTTP_PORT: Final = 9003
