"""How hard the property tests try: the profile "fast" at a desk, "ci" where `CI=true`, or what `HYPOTHESIS_PROFILE` names; and the
engines that plug-ins are tested in, one process each.

"ci" draws the same examples on every run, so that a commit's outcome does not change; a desk draws new ones each time.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import engines

# A conversation with its tools is a large example: that it takes its time to draw is no fault of a test.
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("fast", max_examples=60, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", max_examples=400, deadline=None, suppress_health_check=_SLOW, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "fast"))


def _engine(name: str) -> Iterator[engines.Engine]:
    if reason := engines.missing(name):
        pytest.skip(reason)
    engine = engines.Engine(name)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def vllm() -> Iterator[engines.Engine]:
    """vLLM, or a skipped test."""
    yield from _engine("vllm")


@pytest.fixture(scope="session")
def sglang() -> Iterator[engines.Engine]:
    """SGLang, or a skipped test."""
    yield from _engine("sglang")
