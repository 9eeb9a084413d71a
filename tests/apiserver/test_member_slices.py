"""Users' engines behind a pool's Service, with a real API server and the controllers that look after slices."""

import json

from e2e.cluster.kubectl import Kubectl
from kvcachepool import constants
from kvcachepool.facts import PodFacts
from kvcachepool.render.members import ENGINES_SERVICE, member_slices
from kvcachepool.render.service import service
from tests.apiserver.conftest import eventually
from tests.pools import pool


def test_a_slice_beside_those_of_the_selector_is_taken_and_left_alone(kubectl: Kubectl, namespace: str) -> None:
    item = pool(namespace=namespace)
    pods = [
        PodFacts("own-4", "u4", "", "", ip="10.9.9.4", node="n"),
        PodFacts("own-6", "u6", "", "", ip="fd00::6"),
        PodFacts("own-host", "uh", "", "", ip="10.9.9.5", port=20001),
    ]
    slices = member_slices(item, pods)
    assert len(slices) == 3
    made = [service(item, constants.ENGINE, ENGINES_SERVICE, {"http": constants.ENGINE_PORT}), *slices]
    for obj in made:
        obj["metadata"].pop("ownerReferences")  # the pool is not there, and what it owned would be collected
        kubectl.run("apply", "--server-side", "-f", "-", data=json.dumps(obj))

    def listed() -> dict[str, list[str]]:
        selector = f"kubernetes.io/service-name=demo-{ENGINES_SERVICE}"
        items = kubectl.get("endpointslices", f"--namespace={namespace}", "-l", selector)["items"]
        return {i["metadata"]["name"]: [a for e in i["endpoints"] or () for a in e["addresses"]] for i in items}

    # the controller has looked at the Service once its own slice is there
    eventually(lambda: len(listed()) == 4)
    found = listed()
    assert found["demo-engines-members"] == ["10.9.9.4"]
    assert found["demo-engines-members-v6"] == ["fd00::6"]
    assert found["demo-engines-members-20001"] == ["10.9.9.5"]
    empty = member_slices(item, pods[:1])[0] | {"endpoints": []}
    empty["metadata"].pop("ownerReferences")
    kubectl.run("apply", "--server-side", "-f", "-", data=json.dumps(empty))
    assert listed()["demo-engines-members"] == []
