"""Users' traffic in the status: shares of prompt tokens, without the probe's own."""

import json

from e2e.harness.kube import Kube
from e2e.harness.traffic import complete
from e2e.tests.conftest import Running


def test_traffic_that_one_engine_served_is_a_pool_hit_at_the_other(kube: Kube, shared_pool: Running) -> None:
    pods = kube.items("pods", "-n", shared_pool.namespace, "-l", "kvcachepool.io/component=engine")
    first, second = (pod["metadata"]["name"] for pod in pods)
    hits = 0
    for round_ in range(3):
        prompt = [(7 * i + 13 * round_) % 400 + 20 for i in range(2048)]
        complete(kube, shared_pool.namespace, first, prompt)
        answer = complete(kube, shared_pool.namespace, second, prompt)
        hits += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert hits > 0

    def rate() -> dict[str, int] | None:
        seen: dict[str, int] = kube.pool(shared_pool.namespace, shared_pool.name)["status"].get("hitRate", {})
        return seen if seen.get("pool") else None

    seen = kube.wait("a hit rate", rate, timeout=120)
    # half of the tokens came second; where exactly the window started decides the rest
    assert 20 <= seen["pool"] <= 60, seen
    effective = kube.condition(shared_pool.namespace, shared_pool.name, "CacheEffective")
    assert effective["status"] == "True", json.dumps(effective)
