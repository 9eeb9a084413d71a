"""Every condition and every reason it can have, as data. `docs/reference/conditions.md` is generated from it.

All conditions are positive: True is good. A reason has one status, so that a reason says all. A reason that is
not here cannot be produced (`verdict.speaker`).
"""

from collections.abc import Mapping
from typing import Final

from kvcachepool.status.reason import ConditionInfo, Reason

_NOT_ACCEPTED: Final = Reason(
    "NotAccepted",
    "Unknown",
    "The spec was not accepted and nothing runs that could be judged.",
    "See Accepted.",
)
_CREATION: Final = (
    Reason(
        "QuotaExceeded",
        "False",
        "A ResourceQuota of the namespace leaves no room for the pods.",
        "Raise the quota, or lower replicas or resources. Nothing has to be restarted afterwards.",
    ),
    Reason(
        "PodSecurityForbidden",
        "False",
        "Pod Security (or a security context constraint) of the namespace refuses the pods.",
        "The message quotes the API server. A pool fits the profile `restricted` unless the spec adds to it.",
    ),
    Reason(
        "AdmissionDenied",
        "False",
        "The API server, an admission policy or a webhook refuses an object of the pool.",
        "The message quotes the API server: change the field it names, the policy, or the operator's role.",
    ),
    Reason(
        "NameTaken",
        "False",
        "An object with the name of a child exists and is not the pool's. It is left as it is.",
        "Delete or rename it, or choose another name for the pool.",
    ),
    Reason(
        "ApplyFailed",
        "Unknown",
        "The API server could not take an object just now; the operator tries again with growing pauses.",
        "Look at the API server if it stays.",
    ),
)

CONDITIONS: Final = (
    ConditionInfo(
        "Accepted",
        "the spec is valid and everything it refers to exists",
        (
            Reason("Valid", "True", "The spec is valid and its references resolve."),
            Reason(
                "InvalidSpec",
                "False",
                "A field of the spec cannot be used. Nothing is created or changed.",
                "Change the field that the message names.",
            ),
            Reason(
                "SecretNotFound",
                "False",
                "A Secret, or its key, that the spec names does not exist.",
                "Create it in the pool's namespace, or correct the field that the message names.",
            ),
            Reason(
                "ClaimNotFound",
                "False",
                "A PersistentVolumeClaim that the spec names does not exist.",
                "Create it in the pool's namespace, or correct the field that the message names.",
            ),
            Reason(
                "ConfigMapNotFound",
                "False",
                "A ConfigMap, or its key, that the spec names does not exist.",
                "Create it in the pool's namespace, or correct the field that the message names.",
            ),
        ),
        needed=True,
    ),
    ConditionInfo(
        "StoreReady",
        "the master serves and lists one segment for every store member",
        (
            Reason("Serving", "True", "The master serves and all segments are mounted."),
            Reason("NoStore", "True", "The backend has no shared store: each engine keeps its own cache."),
            _NOT_ACCEPTED,
            *_CREATION,
            Reason(
                "MasterUnschedulable",
                "False",
                "No node fits the master's pod; the message quotes the scheduler.",
                "Change spec.store.master.scheduling, spec.scheduling or spec.store.master.resources.",
            ),
            Reason(
                "MasterImageBroken",
                "False",
                "The master's image cannot be pulled or its program cannot be loaded.",
                "Correct spec.store.image or the registry's access (spec.imagePullSecrets).",
            ),
            Reason(
                "MasterOOMKilled",
                "False",
                "The master ran out of memory. Its index is lost, and with it the pool's content.",
                "Raise spec.store.master.resources.limits.memory, or spec.schema.blockSize for fewer blocks.",
            ),
            Reason(
                "MasterCrashLoop",
                "False",
                "The master ends again and again; the message has the first error line.",
                "Act on the error line; `kubectl logs --previous` has more.",
            ),
            Reason(
                "MasterNotReady",
                "False",
                "The master's pod is not ready yet.",
                "Wait; the message says for what.",
                passing=True,
            ),
            Reason(
                "MasterUnreachable",
                "Unknown",
                "The master's pod is ready, but the operator cannot ask it over HTTP.",
                "Allow the operator to reach port 9003 of the master (NetworkPolicy), or look for a hanging master.",
            ),
            Reason(
                "StoreUnschedulable",
                "False",
                "No node fits a store pod; the message quotes the scheduler.",
                "Change spec.store.scheduling, spec.scheduling, spec.store.segmentSize or spec.store.resources.",
            ),
            Reason(
                "StoreImageBroken",
                "False",
                "The image of the store pods cannot be pulled or their program cannot be loaded.",
                "Correct spec.store.image or the registry's access (spec.imagePullSecrets).",
            ),
            Reason(
                "StoreOOMKilled",
                "False",
                "A store pod ran out of memory; the blocks in its segment are lost.",
                "Raise spec.store.resources.limits.memory, or lower spec.store.segmentSize.",
            ),
            Reason(
                "StoreCrashLoop",
                "False",
                "A store pod ends again and again; the message has the first error line.",
                "Act on the error line; `kubectl logs --previous` has more.",
            ),
            Reason("StoreNotReady", "False", "Store pods start or are being replaced.", "Wait.", passing=True),
            Reason(
                "NotMeasured",
                "Unknown",
                "The master serves but does not list its segments.",
                "Check that spec.backend.mooncake.version is the version inside spec.store.image.",
            ),
            Reason(
                "MasterRestarted",
                "False",
                "The master lost its index, and members have not registered with the new one yet.",
                "Wait some seconds. The pool fills anew; look for the cause of the restart.",
                passing=True,
            ),
            Reason(
                "ClientsExpired",
                "False",
                "Members stayed silent longer than clientTtlSeconds, and the master dropped their segments.",
                "Members come back by themselves. If it happens again, raise spec.store.master.clientTtlSeconds.",
            ),
            Reason(
                "SegmentsMissing",
                "False",
                "The master lists fewer segments than there are store members.",
                "The message names the pods without a segment: look into their logs.",
            ),
            Reason(
                "PoolFull",
                "False",
                "The pool is full, nothing is evicted, and new blocks are refused.",
                "Add spec.store.replicas or spec.store.segmentSize, or lower spec.store.master.evictionHighWatermark.",
            ),
        ),
        needed=True,
    ),
    ConditionInfo(
        "EnginesReady",
        "all engines of this generation are ready",
        (
            Reason("AllReady", "True", "All engines run the current template and are ready."),
            Reason("ScaledToZero", "True", "No engine is wanted: spec.engines.replicas is 0."),
            _NOT_ACCEPTED,
            Reason(
                "WaitingForMaster",
                "False",
                "Engines are not created before the master answers; no device is held meanwhile.",
                "See StoreReady.",
                passing=True,
            ),
            Reason(
                "MasterUnreachable",
                "False",
                "An engine's pod waited for the master in vain; the message has the address and the error.",
                "See StoreReady. If it is True, look at DNS and NetworkPolicies between engines and master.",
            ),
            *_CREATION,
            Reason(
                "Unschedulable",
                "False",
                "No node fits an engine; the message quotes the scheduler.",
                "Free or add devices, or change spec.engines.gpu, spec.engines.scheduling or spec.scheduling.",
            ),
            Reason(
                "ImageNotStartable",
                "False",
                "A container cannot be started: its image, its program or something it refers to is missing.",
                "The message names image and container: correct spec.engines.image or the registry's access.",
            ),
            Reason(
                "StartupTimeout",
                "False",
                "An engine loads longer than spec.engines.startupSeconds and is restarted.",
                "Raise spec.engines.startupSeconds, or look at what slows the loading.",
            ),
            Reason(
                "EngineCrashLoop",
                "False",
                "An engine ends again and again (exit code 0 counts, too) or runs out of memory.",
                "Act on the error line in the message; `kubectl logs --previous` has more.",
            ),
            Reason("RollingOut", "False", "Engines are moved to a new template one by one.", "Wait.", passing=True),
            Reason("Progressing", "False", "Engines load the model.", "Wait.", passing=True),
        ),
        needed=True,
    ),
    ConditionInfo(
        "SchemaHomogeneous",
        "declared and observed cache schema are the same in every member",
        (
            Reason("AllAlike", "True", "Labels, flags, environment and the engines' own cache settings agree."),
            _NOT_ACCEPTED,
            Reason(
                "SchemaMismatch",
                "False",
                "A member has another schema; the message names pod, field and both values.",
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
                "EnginesUnreachable",
                "Unknown",
                "What was declared agrees, but the cache settings of some engines could not be read.",
                "Allow the operator to reach port 8000 of the engines (NetworkPolicy), or look for a hanging engine.",
            ),
        ),
        needed=True,
    ),
    ConditionInfo(
        "TransportMatched",
        "members really use the transport protocol that was asked for",
        (
            Reason("AsAsked", "True", "All segments use the protocol of spec.transport."),
            Reason("NoSharedTransport", "True", "The backend shares nothing, so that nothing travels."),
            _NOT_ACCEPTED,
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
                "Segments use another protocol than spec.transport asks for; the message names them.",
                "Restart the pods it names; if they come back so, look into their logs for the transport's set-up.",
            ),
        ),
        needed=True,
    ),
    ConditionInfo(
        "ReuseVerified",
        "a probe has seen one engine reuse what another computed, with the same answer",
        (
            Reason("Verified", "True", "Reused across engines, same answer, and the negative arm missed."),
            _NOT_ACCEPTED,
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
            Reason(
                "Disabled", "Unknown", "spec.verification.enabled is false.", "Set it to true to have reuse proved."
            ),
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
    ),
    ConditionInfo(
        "ReuseWorthwhile",
        "time to first token by reuse is shorter than by recompute",
        (
            Reason("ReuseFaster", "True", "Reuse is faster than recompute."),
            _NOT_ACCEPTED,
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
    ),
    ConditionInfo(
        "CacheEffective",
        "users' prompts hit the cache",
        (
            Reason("HitsObserved", "True", "A share of the prompt tokens comes from the cache."),
            _NOT_ACCEPTED,
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
    ),
    ConditionInfo(
        "Available",
        "at least one engine serves",
        (
            Reason("Serving", "True", "At least one engine is ready."),
            _NOT_ACCEPTED,
            Reason("NoEngineServes", "False", "No engine is ready.", "See EnginesReady."),
        ),
    ),
    ConditionInfo(
        "Ready",
        "all conditions that the pool's operation needs are True for this generation",
        (
            Reason("AllConditionsTrue", "True", "All of them are True."),
            # Otherwise the reason of the first needed condition that is False, or else of the first Unknown one.
        ),
    ),
)

BY_TYPE: Final[Mapping[str, ConditionInfo]] = {info.type: info for info in CONDITIONS}
NEEDED: Final = tuple(info.type for info in CONDITIONS if info.needed)
"""What Ready needs, in the order in which the first that fails is reported."""


def reasons_of(condition: str) -> Mapping[str, Reason]:
    """All reasons that the condition can have, by name; Ready has also those of the conditions it needs.

    Where two needed conditions share a reason's name, the former of them stands in Ready's table.
    """
    found = {reason.name: reason for reason in BY_TYPE[condition].reasons}
    if condition == "Ready":
        for needed in NEEDED:
            for reason in BY_TYPE[needed].reasons:
                if reason.status != "True":
                    found.setdefault(reason.name, reason)
    return found
