"""A model and a callback of a user's own on real ranks: the steps of one process, ended for all by one rank."""

import numpy as np
import pytest

from shoal.distributed.transport import LocalTransport
from user_models import train_here


@pytest.mark.parametrize("is_cut", [True, False])
def test_ranks_train_any_module_and_stop_together(is_cut, ranks):
    answer = ranks("gloo", 3).call(train_here, is_cut)
    assert answer["epochs"] == [[2]] * 3
    alone = train_here(LocalTransport(), is_cut)
    np.testing.assert_allclose(answer["losses"], alone["losses"], rtol=1e-4)
    assert answer["unused"] == alone["unused"]  # no rank decays what has no gradient
