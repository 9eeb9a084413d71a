"""Hostile input for every parser. `KVCP_FUZZ=10000` (make fuzz) tries that many for each; CI a fixed, smaller set."""

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("KVCP_FUZZ", "0"))
_CI = 60
_HANG_SECONDS = 120 + EXAMPLES
"""A whole target takes a fraction of it; one input that keeps a parser busy for ever does not end otherwise."""

settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES or _CI,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    # an input that fails is shown as it is: making it smaller would take longer than finding it
    phases=(Phase.explicit, Phase.generate),
    print_blob=True,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only here: the properties of other folders keep their own profile."""
    for item in items:
        function = getattr(item, "obj", None)
        if "tests/fuzz" in str(item.path) and hasattr(function, "hypothesis"):
            settings.get_profile("fuzz")(function)
            item.add_marker(pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning"))


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Fails instead of hanging."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError("a parser is still busy")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANG_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
