"""Reasons of the conditions that tell whether the pool runs."""

from typing import Final

from kvcachepool.status.reason import NOT_ACCEPTED, ConditionInfo, Reason

CREATION: Final = (
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
"""Why pods or other objects could not be made."""

ACCEPTED: Final = ConditionInfo(
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
            "InternalError",
            "False",
            "The operator failed in its pass over this pool, which is a fault of the operator: the spec may be right. "
            "What runs is left as it is, and so are the other conditions; the operator tries again with growing "
            "pauses, and the next pass that succeeds clears it.",
            "File an issue with the message and the operator's log, which has the traceback. An edit of what the "
            "message points at may help until then.",
        ),
        Reason(
            "CUDABuildMismatch",
            "False",
            "Image and spec.cuda.version contradict each other, or neither tells the CUDA of the engine build.",
            "Make them agree; with an image whose tag does not tell, set spec.cuda.version.",
        ),
        Reason(
            "VersionSkew",
            "False",
            "The engine image is known to hold another version than the spec says. Skew fails without an error.",
            "Make image, spec.engines.version and spec.backend.mooncake.version agree.",
        ),
        Reason(
            "KnownBadCombination",
            "False",
            "These versions are known not to work together; the message names the public report.",
            "Follow the message.",
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
)

STORE_READY: Final = ConditionInfo(
    "StoreReady",
    "the master serves and lists one segment for every store member",
    (
        Reason("Serving", "True", "The master serves and all segments are mounted."),
        Reason("NoStore", "True", "The backend has no shared store: each engine keeps its own cache."),
        NOT_ACCEPTED,
        *CREATION,
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
        ),
        Reason(
            "PendingMasterRestart",
            "False",
            "The pool serves, but an edit needs a restart of the master, which empties it: it waits for approval.",
            "Look into the message for what waits, and approve it with the command there when it suits.",
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
)

ENGINES_READY: Final = ConditionInfo(
    "EnginesReady",
    "all engines of this generation are ready",
    (
        Reason("AllReady", "True", "All engines run the current template and are ready."),
        Reason("ScaledToZero", "True", "No engine is wanted: spec.engines.replicas is 0."),
        NOT_ACCEPTED,
        Reason(
            "WaitingForMaster",
            "False",
            "Engines are not created before the master answers; no device is held meanwhile.",
            "See StoreReady.",
            passing=True,
        ),
        Reason(
            "WaitingForNodes",
            "False",
            "Engines are not created, or not moved to a changed template, before a node fits them.",
            "See HardwareMatched. spec.engines.whenNoNodeFits: Create makes them all the same, for an autoscaler.",
        ),
        Reason(
            "PreflightFailed",
            "False",
            "An engine cannot work in its image or on its node: a library, device, driver or version is not right.",
            "Follow the message: it names what is missing and what to install or change.",
        ),
        Reason(
            "MasterUnreachable",
            "False",
            "An engine's pod waited for the master in vain; the message has the address and the error.",
            "See StoreReady. If it is True, look at DNS and NetworkPolicies between engines and master.",
        ),
        *CREATION,
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
        Reason(
            "RollingOut",
            "False",
            "Engines are moved to a new template or schema one by one; the message says how far.",
            "Wait.",
            passing=True,
        ),
        Reason("Progressing", "False", "Engines load the model.", "Wait.", passing=True),
    ),
    needed=True,
)

AVAILABLE: Final = ConditionInfo(
    "Available",
    "at least one engine serves",
    (
        Reason("Serving", "True", "At least one engine is ready."),
        NOT_ACCEPTED,
        Reason("NoEngineServes", "False", "No engine is ready.", "See EnginesReady."),
    ),
)

READY: Final = ConditionInfo(
    "Ready",
    "all conditions that the pool's operation needs are True for this generation",
    (
        Reason("AllConditionsTrue", "True", "All of them are True."),
        # Otherwise the reason of the first needed condition that is False, or else of the first Unknown one.
    ),
)
