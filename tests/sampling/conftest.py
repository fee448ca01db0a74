"""One thread for the sampler tests: their tensors are tiny, and waking threads would cost more than the work."""

import pytest

from shoal.threads import set_threads


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    set_threads(1)
    yield
    set_threads()
