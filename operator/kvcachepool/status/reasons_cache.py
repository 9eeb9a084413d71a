"""Reasons of the conditions that tell whether the cache is one, works, and is worth having."""

from typing import Final

from kvcachepool.status.reason import NOT_ACCEPTED, ConditionInfo, Reason

SCHEMA_HOMOGENEOUS: Final = ConditionInfo(
    "SchemaHomogeneous",
    "declared and observed cache schema are the same in every member",
    (
        Reason("AllAlike", "True", "Labels, flags, environment and the engines' own cache settings agree."),
        NOT_ACCEPTED,
        Reason(
            "SchemaMismatch",
            "False",
            "A member has another schema; the message names pod, field and both values. A pod of your own that differs "
            "gets no traffic from the pool's Service, and an Event. With the label kvcachepool.io/component, which is "
            "not for pods of your own, the Service selects it all the same.",
            "Give the pod the pool's value, or take it out of the pool (label kvcachepool.io/pool).",
        ),
        Reason("RollingOut", "Unknown", "Pods of the former schema are being replaced.", "Wait.", passing=True),
        Reason(
            "NoMembers",
            "Unknown",
            "No engine is ready, so there is nothing to compare.",
            "See EnginesReady.",
            passing=True,
        ),
        Reason(
            "NotReadable",
            "Unknown",
            "Something of a pod of your own cannot be told: a variable from a Secret, or the engine's own settings.",
            "Give the variable as a literal value, or allow the operator to reach port 8000 of the pod.",
        ),
        Reason(
            "EnginesUnreachable",
            "Unknown",
            "What was declared agrees, but the cache settings of some engines could not be read.",
            "Allow the operator to reach port 8000 of the engines (NetworkPolicy), or look for a hanging engine.",
        ),
    ),
    needed=True,
)

TRANSPORT_MATCHED: Final = ConditionInfo(
    "TransportMatched",
    "members really use the transport protocol that was asked for",
    (
        Reason("AsAsked", "True", "All members use the protocol of spec.transport."),
        Reason("NoSharedTransport", "True", "The backend shares nothing, so that nothing travels."),
        NOT_ACCEPTED,
        Reason(
            "NotMeasured",
            "Unknown",
            "The master has not listed a segment with its protocol yet.",
            "See StoreReady.",
            passing=True,
        ),
        Reason(
            "TransportDowngraded",
            "False",
            "Members use another protocol than spec.transport asks for, by their own logs; the message names them.",
            "Restart the pods it names; if they come back so, look into their logs for the transport's set-up.",
        ),
    ),
    needed=True,
)

REUSE_VERIFIED: Final = ConditionInfo(
    "ReuseVerified",
    "a probe has seen one engine reuse what another computed, with the same answer",
    (
        Reason("Verified", "True", "Reused across engines, same answer, and the negative arm missed."),
        NOT_ACCEPTED,
        Reason(
            "ZeroCrossInstanceHits",
            "False",
            "The second engine reused nothing of what the first had computed, although their settings agree.",
            "See CacheEffective and StoreReady; compare image versions of all members.",
        ),
        Reason(
            "OutputMismatch",
            "False",
            "An answer from reused blocks differs from that of a local hit: the cache returns wrong data.",
            "Do not trust the pool: change spec.schema.hashSeed to start an empty one, and report the versions.",
        ),
        Reason(
            "NegativeArmHit",
            "False",
            "A prompt that must not be found was found: keys do not isolate.",
            "Do not trust the pool: change spec.schema.hashSeed to start an empty one, and report the versions.",
        ),
        Reason(
            "SavesFailing",
            "False",
            "Blocks of the probe could not be stored.",
            "See StoreReady (PoolFull) and CacheEffective; check the network between engines and store pods.",
        ),
        Reason(
            "LoadsFailing",
            "False",
            "Blocks of the probe could not be loaded.",
            "See StoreReady and CacheEffective; check the network between engines and store pods.",
        ),
        Reason("SinglePod", "Unknown", "Fewer than two engines: nothing can be reused across engines."),
        Reason(
            "NotShared",
            "Unknown",
            "The native backend shares nothing between engines.",
            "Choose a shared backend (spec.backend.mooncake) if engines should reuse each other's prefixes.",
        ),
        Reason("Disabled", "Unknown", "spec.verification.enabled is false.", "Set it to true to have reuse proved."),
        Reason(
            "Pending",
            "Unknown",
            "No probe has run with the current schema and pods yet. None runs while pods roll.",
            "Wait.",
            passing=True,
        ),
        Reason(
            "ProbeFailed",
            "Unknown",
            "The last probe could not be finished; the message says why.",
            "See EnginesReady.",
        ),
    ),
)

REUSE_WORTHWHILE: Final = ConditionInfo(
    "ReuseWorthwhile",
    "time to first token by reuse is shorter than by recompute",
    (
        Reason("ReuseFaster", "True", "Reuse is faster than recompute."),
        NOT_ACCEPTED,
        Reason(
            "ReuseSlowerThanRecompute",
            "False",
            "Loading from the pool takes longer than computing anew.",
            "status.advice says what would help: fp8 KV cache, longer prompts, native offload, a faster network.",
        ),
        Reason(
            "NotMeasured",
            "Unknown",
            "There is no verified probe with both times.",
            "See ReuseVerified.",
            passing=True,
        ),
    ),
)

CACHE_EFFECTIVE: Final = ConditionInfo(
    "CacheEffective",
    "users' prompts hit the cache",
    (
        Reason("HitsObserved", "True", "A share of the prompt tokens comes from the cache."),
        NOT_ACCEPTED,
        Reason(
            "EnginesStranded",
            "False",
            "Engines have lost the store and do not find it again by themselves; they answer, but compute everything.",
            "Delete the pods it names one by one, or set spec.engines.restartWhenStranded: OneAtATime.",
        ),
        Reason(
            "LoadsLooping",
            "False",
            "A request asks for the same blocks again and again and gets no answer, while the engine's health is 200.",
            "Cancel the request, or delete the pod it names; spec.engines.restartWhenStranded: OneAtATime does so. "
            "Then look for a member with another schema (SchemaHomogeneous).",
        ),
        Reason(
            "LoadsFailing",
            "False",
            "Loads fail: requests wait for them, then compute anew. Hits are counted all the same.",
            "See StoreReady; raise spec.store.master.leaseTtlMilliseconds if loads take longer than it.",
        ),
        Reason(
            "SavesFailing",
            "False",
            "Saves fail, so that later prompts find nothing.",
            "See StoreReady (PoolFull); check the network between engines and store pods.",
        ),
        Reason(
            "MetricsUnavailable",
            "Unknown",
            "No engine's metrics could be read.",
            "See EnginesReady and SchemaHomogeneous.",
        ),
        Reason("NoTraffic", "Unknown", "Too few prompt tokens to judge.", passing=True),
        Reason(
            "WritesNotArriving",
            "False",
            "Engines look blocks up but nothing is stored.",
            "Check that master, store pods and engines have one Mooncake version.",
        ),
        Reason(
            "ZeroHits",
            "False",
            "Blocks are stored and looked up, but none is found.",
            "If ReuseVerified is True, the prompts share no prefix, or each engine sees its own prefixes again.",
        ),
    ),
)
