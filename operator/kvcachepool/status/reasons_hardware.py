"""Reasons of the condition that tells whether nodes can run the pool."""

from typing import Final

from kvcachepool.status.reason import NOT_ACCEPTED, ConditionInfo, Reason

HARDWARE_MATCHED: Final = ConditionInfo(
    "HardwareMatched",
    "nodes fit: GPU and its driver, RDMA resource, memory, huge pages, placement",
    (
        Reason("NodesFit", "True", "At least one node fits every component of the pool."),
        NOT_ACCEPTED,
        Reason(
            "NodesNotReadable",
            "Unknown",
            "The operator may not read nodes. Pods are made all the same, and Ready does not wait for this.",
            "Grant get, list and watch of nodes (chart value nodes.read=true), or look at the pods.",
            harmless=True,
        ),
        Reason(
            "NoMatchingNodes",
            "False",
            "No node has the devices, the GPU product, the labels or the tolerated taints that are asked for.",
            "The message lists why, with the values that exist: change spec.engines.gpu, spec.scheduling or the nodes.",
        ),
        Reason(
            "NoCompatibleDriver",
            "False",
            "Nodes are right but for the GPU driver, or the GPU itself, which cannot run the CUDA of the build.",
            "Update the driver, choose an older spec.cuda.version, or see spec.cuda.allowForwardCompat.",
        ),
        Reason(
            "NoRDMANodes",
            "False",
            "Nodes are right but offer none of the RDMA resource.",
            "Correct spec.transport.rdma.resourceName, or run a device plugin (spec.transport.rdma.devicePlugin).",
        ),
        Reason(
            "HeterogeneousGPUs",
            "False",
            "Nodes that fit have different GPUs, whose attention backends may store different bytes under one key.",
            "Set spec.engines.gpu.product, or pin spec.schema.attentionBackend.",
        ),
        Reason(
            "InsufficientNodeMemory",
            "False",
            "Nodes are right but have too little memory, or too few huge pages, even when nothing else runs there.",
            "Lower spec.store.segmentSize or spec.engines.engineMemory, or add larger nodes; the message has the sum.",
        ),
    ),
    needed=True,
)
