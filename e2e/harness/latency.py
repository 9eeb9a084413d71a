"""How much longer the API server takes to let in a pod that names a pool than one that does not."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

from e2e.harness.api import Api


@dataclass(frozen=True)
class AdmissionLatency:
    """Medians in milliseconds of pod creations that store nothing; taken in turns, so that both see the same load."""

    labelled: float
    unlabelled: float
    count: int

    @property
    def more(self) -> float:
        """What the policy adds to a labelled pod."""
        return self.labelled - self.unlabelled


def admission_latency(api: Api, labelled: dict[str, Any], *, count: int = 100) -> AdmissionLatency:
    """Measures with a pod that a policy lets in, and with the same pod without labels. Raises ValueError if it is
    refused."""
    plain = labelled | {"metadata": labelled["metadata"] | {"labels": {}}}
    times: dict[bool, list[float]] = {True: [], False: []}
    for index in range(2 * (count + 5)):
        named = index % 2 == 0
        start = time.perf_counter()
        said = api.create_pod(labelled if named else plain)
        took = time.perf_counter() - start
        if said:
            raise ValueError(f"the pod was refused: {said}")
        if index >= 10:  # the first ones compile expressions and open caches
            times[named].append(took * 1000)
    return AdmissionLatency(statistics.median(times[True]), statistics.median(times[False]), count)
