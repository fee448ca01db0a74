"""Masks of rows: the kernel draws what plain torch draws, and what dropout draws of column 0."""

import pytest
import torch

from shoal.kernels.fused import keep_mask_reference, mix_key
from shoal.kernels.row_mask import keep_ids, keep_ids_reference


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.5, 0.999])
def test_the_kernel_keeps_what_the_reference_keeps(rate):
    generator = torch.Generator().manual_seed(0)
    ids = torch.cat([torch.arange(5000), torch.randint(0, 2**62, (5000,), generator=generator)])
    for step in range(3):
        key = mix_key(7, step, 2**63 + 5)
        kept = keep_ids(ids, rate, key)
        assert torch.equal(kept, keep_ids_reference(ids, rate, key))
        assert torch.equal(kept, keep_mask_reference(key, ids[:, None], torch.arange(2), rate)[:, 0])
        assert abs(float(kept.double().mean()) - (1 - rate)) < 0.03
    assert len(keep_ids(ids[:0], rate, 1)) == 0
