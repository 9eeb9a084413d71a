"""Engines move to another schema one at a time, without surplus devices, and only while the new ones work."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool import constants
from kvcachepool.generations import RESTARTS, Generation, next_step
from tests.moving_world import World

OTHER = {"model": {"revision": "r2"}}
THIRD = {"schema": {"hashSeed": "3"}}
EDITS: list[dict[str, Any]] = [{}, OTHER, THIRD, {"schema": {"blockSize": 32}}]


def running(replicas: int = 2, surge: int = 0) -> World:
    world = World(replicas, surge)
    world.settle()
    assert world.engines() == ({world.digest(): (replicas, replicas)} if replicas else {})
    return world


def serving(world: World) -> int:
    return sum(pod.ready for pod in world.pods)


@pytest.mark.parametrize(("replicas", "surge"), [(1, 0), (2, 0), (3, 0), (5, 0), (1, 1), (2, 1), (4, 2), (3, 9)])
def test_engines_move_within_devices_and_with_enough_serving(replicas: int, surge: int) -> None:
    world = running(replicas, surge)
    world.spec = OTHER
    floor = replicas if surge else replicas - 1
    for _ in range(4 * replicas + 4):
        for act in (world.step, world.controller, world.step, world.ended):
            act()
            world.check()
            assert serving(world) >= floor
        loading = [p for p in world.pods if not p.ready and not p.deleting]
        assert len(loading) <= max(surge, 1)
        if loading:
            loading[0].ready = True
    assert world.engines() == {world.digest(): (replicas, replicas)}
    assert len(world.deployments) == 1, "the former Deployment is gone"
    assert world.most_live <= 2


def test_each_deployment_has_the_labels_and_the_name_of_its_generation() -> None:
    world = running()
    world.spec = OTHER
    world.step()
    world.controller()
    world.ended()
    world.step()
    for name, live in world.deployments.items():
        digest = live["metadata"]["labels"][constants.LABEL_SCHEMA]
        template = live["spec"]["template"]
        assert name == f"demo-engine-{digest}"
        assert live["spec"]["selector"]["matchLabels"][constants.LABEL_SCHEMA] == digest
        assert template["metadata"]["labels"][constants.LABEL_SCHEMA] == digest
        assert f'"cache_prefix": "{digest}"' in " ".join(template["spec"]["containers"][0]["args"])
    assert len(world.deployments) == 2


def test_a_failing_generation_stops_the_move_with_the_former_one_serving() -> None:
    world = running(3)
    former = world.digest()
    world.spec = OTHER
    world.settle(broken=frozenset({world.digest()}))
    assert world.engines() == {former: (2, 2), world.digest(): (1, 0)}


def test_an_engine_that_comes_and_goes_stops_the_move_too() -> None:
    world = running(3)
    former = world.digest()
    world.spec = OTHER
    world.step()
    world.controller()
    world.ended()
    world.step()
    world.controller()
    (new,) = world.of(world.digest())
    new.ready, new.restarts = True, RESTARTS
    for _ in range(5):
        world.step()
        world.controller()
    assert world.engines() == {former: (2, 2), world.digest(): (1, 1)}


def test_a_former_engine_that_crashes_while_the_new_ones_fail_keeps_its_place() -> None:
    world = running(3)
    former = world.digest()
    world.spec = OTHER
    broken = frozenset({world.digest()})
    world.settle(broken=broken)
    world.of(former)[0].ready = False
    for _ in range(3):
        world.step()
        world.controller()
        world.ended()
    assert len(world.of(former)) == 2


def test_going_back_midway_returns_to_the_former_deployment_and_pods() -> None:
    world = running(3)
    former, kept = world.digest(), {p.name for p in world.pods}
    before = {name: live["spec"]["template"] for name, live in world.deployments.items()}
    world.spec = OTHER
    world.settle(broken=frozenset({world.digest()}))
    world.spec = {}
    world.settle()
    assert world.engines() == {former: (3, 3)}
    assert len(kept & {p.name for p in world.pods}) == 2, "those that were still there stayed"
    assert {name: live["spec"]["template"] for name, live in world.deployments.items()} == before


def test_going_back_later_gives_the_former_name_and_prefix() -> None:
    world = running()
    names = set(world.deployments)
    world.spec = OTHER
    world.settle()
    assert not names & set(world.deployments)
    world.spec = {}
    world.settle()
    assert set(world.deployments) == names


@pytest.mark.parametrize("passes", [0, 1, 2, 4])
def test_two_quick_edits_end_at_the_last(passes: int) -> None:
    world = running(3)
    world.spec = OTHER
    for _ in range(passes):
        world.step()
        world.controller()
        world.ended()
    world.spec = THIRD
    world.settle()
    assert world.engines() == {world.digest(): (3, 3)}
    assert len(world.deployments) == 1
    assert world.most_live <= 2


def test_an_edit_of_a_pool_that_has_never_served_waits_for_nobody() -> None:
    world = World(4)
    world.step()
    world.controller()
    world.spec = OTHER
    world.step()
    world.controller()
    world.ended()
    world.step()
    world.controller()
    assert world.engines() == {world.digest(): (4, 0)}


def test_a_repaired_template_of_the_new_generation_lets_the_move_go_on() -> None:
    world = running(3)
    bad = OTHER | {"engines": {"image": "registry.internal/bad:1"}}
    world.spec = bad
    digest = world.digest()
    world.settle(broken=frozenset({digest}))
    world.spec, world.lenient = OTHER, True
    assert world.digest() == digest, "an image is not part of the schema"
    world.settle()
    assert world.engines() == {digest: (3, 3)}


def test_a_pass_that_changes_the_template_moves_nothing() -> None:
    world = running(3)
    world.spec = OTHER
    world.step()
    world.controller()
    world.ended()
    world.step()
    world.controller()
    for pod in world.pods:
        pod.ready = not pod.deleting
    counts = {name: live["spec"]["replicas"] for name, live in world.deployments.items()}
    world.spec = OTHER | {"engines": {"image": "registry.internal/other:1"}}
    world.step()
    assert {name: live["spec"]["replicas"] for name, live in world.deployments.items()} == counts


def test_engines_of_a_former_schema_stay_while_the_next_ones_cannot_start() -> None:
    world = running()
    former = world.digest()
    world.spec = OTHER
    plan = world.step(master=False)
    world.controller()
    assert plan.waiting is not None
    assert plan.waiting.reason == "WaitingForMaster"
    assert world.engines() == {former: (2, 2)}


def test_scaling_while_engines_move_counts_all_of_them() -> None:
    world = running(4)
    world.spec = OTHER
    world.step()
    world.controller()
    world.ended()
    world.step()
    world.controller()
    world.replicas = 2
    for _ in range(3):
        world.step()
        world.controller()
        world.ended()
    assert len(world.pods) == 2
    world.replicas = 6
    world.settle()
    assert world.engines() == {world.digest(): (6, 6)}
    world.replicas, world.spec, world.lenient = 0, {}, True
    world.settle()
    assert world.pods == []


def test_of_two_former_generations_the_smaller_goes_first_and_the_next_begins_when_one_is_left() -> None:
    old = Generation("a", "a", replicas=2, present=2, ready=2, well=2, created="1")
    between = Generation("b", "b", replicas=1, present=1, ready=1, well=1, created="2")
    first = next_step(3, 0, Generation("c"), [old, between])
    assert (first.current, first.formers) == (0, {"a": 2, "b": 0})
    ending = Generation("b", "b", replicas=0, present=1)
    assert next_step(3, 0, Generation("c"), [old, ending]).current == 0
    gone = Generation("b", "b")
    assert next_step(3, 0, Generation("c"), [old, gone]).current == 1


class Chaos(World):
    """A world in which anything may happen in any order."""

    def ready(self, pick: int) -> None:
        loading = [p for p in self.pods if not p.ready and not p.deleting]
        if loading:
            loading[pick % len(loading)].ready = True

    def gone(self, pick: int) -> None:
        leaving = [p for p in self.pods if p.deleting]
        if leaving:
            self.pods.remove(leaving[pick % len(leaving)])

    def crash(self, pick: int) -> None:
        up = [p for p in self.pods if p.ready]
        if up:
            up[pick % len(up)].ready = False


ACTS = st.tuples(st.sampled_from(["step", "step", "controller", "controller", "ready", "gone"]), st.integers(0, 9))


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(0, 4),
    surge=st.integers(0, 2),
    acts=st.lists(st.one_of(ACTS, st.tuples(st.just("edit"), st.integers(0, 3))), max_size=30),
)
def test_whatever_the_order_devices_suffice_engines_serve_and_the_last_edit_wins(
    replicas: int, surge: int, acts: list[tuple[str, int]]
) -> None:
    world = Chaos(replicas, surge)
    world.settle()
    floor = max(replicas if surge else replicas - 1, 0)
    for act, pick in acts:
        if act == "edit":
            world.spec = EDITS[pick]
        elif act in {"step", "controller"}:
            getattr(world, act)()
        else:
            getattr(world, act)(pick)
        world.check()
        assert serving(world) >= floor, world.pods
    world.settle()
    assert world.engines() == ({world.digest(): (replicas, replicas)} if replicas else {})
    assert len(world.deployments) == 1


@settings(max_examples=40, deadline=None)
@given(
    acts=st.lists(
        st.one_of(ACTS, st.tuples(st.sampled_from(["edit", "crash"]), st.integers(0, 3))), min_size=5, max_size=40
    ),
    surge=st.integers(0, 2),
)
def test_after_any_crashes_the_move_still_ends(acts: list[tuple[str, int]], surge: int) -> None:
    world = Chaos(3, surge)
    world.settle()
    for act, pick in acts:
        if act == "edit":
            world.spec = EDITS[pick]
        elif act in {"step", "controller"}:
            getattr(world, act)()
        else:
            getattr(world, act)(pick)
        world.check()
    world.settle()
    assert world.engines() == {world.digest(): (3, 3)}
