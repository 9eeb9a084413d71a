"""Whose a namespace is, when two installations watch it."""

from kvcachepool.claims import Claims
from kvcachepool.cluster import ApiError


class Leases:
    """The claim's Lease, as `Cluster` gives it."""

    def __init__(self) -> None:
        self.lease = None
        self.writes = 0
        self.forbidden = False

    async def get(self, _kind, _namespace, _name):
        if self.forbidden:
            raise ApiError(403, "no")
        return self.lease

    async def create(self, obj):
        self.lease, self.writes = obj, self.writes + 1
        return obj

    update = create


class Install:
    def __init__(self, leases, clock, name, *, claiming):
        self.conflicts = []
        self.claims = Claims(
            leases,
            installation=name,
            claiming=claiming,
            on_conflict=lambda _ns, on: self.conflicts.append(on),
            clock=lambda: clock[0],
        )

    async def owns(self):
        return not await self.claims.other_owner("ns")


async def test_a_namespaced_installation_comes_before_the_cluster_wide_one():
    leases, clock = Leases(), [0.0]
    wide = Install(leases, clock, "op/wide", claiming=False)
    small = Install(leases, clock, "team/small", claiming=True)
    assert await wide.owns()
    assert leases.writes == 0, "a cluster-wide installation claims nothing"
    assert await small.owns()
    assert leases.lease["spec"]["holderIdentity"] == "team/small"
    clock[0] = 41
    assert not await wide.owns()
    assert wide.conflicts == [True]
    for clock[0] in range(60, 600, 30):
        assert await small.owns()
        assert not await wide.owns()


async def test_a_claim_that_is_no_longer_renewed_ends():
    leases, clock = Leases(), [0.0]
    small = Install(leases, clock, "team/small", claiming=True)
    wide = Install(leases, clock, "op/wide", claiming=False)
    assert await small.owns()
    assert not await wide.owns()
    while not await wide.owns():
        clock[0] += 30
    assert 120 <= clock[0] <= 180
    assert wide.conflicts == [True, False]


async def test_of_two_namespaced_installations_the_first_stays():
    leases, clock = Leases(), [0.0]
    first = Install(leases, clock, "a/x", claiming=True)
    second = Install(leases, clock, "b/x", claiming=True)
    for clock[0] in range(0, 600, 30):
        assert await first.owns()
        assert not await second.owns()
    assert leases.lease["spec"]["holderIdentity"] == "a/x"


async def test_answers_are_believed_for_a_while():
    leases, clock = Leases(), [0.0]
    small = Install(leases, clock, "a/x", claiming=True)
    for clock[0] in range(30):
        assert await small.owns()
    assert leases.writes == 1


async def test_without_the_right_to_read_leases_there_is_no_claim():
    leases, clock = Leases(), [0.0]
    leases.forbidden = True
    assert await Install(leases, clock, "op/wide", claiming=False).owns()


async def test_rare_passes_make_the_claim_longer():
    leases = Leases()
    claims = Claims(leases, installation="a/x", claiming=True, pass_seconds=300.0, clock=lambda: 0.0)
    await claims.other_owner("ns")
    assert leases.lease["spec"]["leaseDurationSeconds"] == 1200


async def test_a_development_run_claims_and_respects_nothing():
    leases, clock = Leases(), [0.0]
    await Install(leases, clock, "a/x", claiming=True).owns()
    assert await Install(leases, clock, "", claiming=True).owns()
    assert leases.writes == 1
