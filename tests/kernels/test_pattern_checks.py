"""Patterns and parts that users make: what would lead a kernel out of its arrays is refused when they are made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.block import Block
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.partitioning.part import Part, make_part
from small_graphs import make_labelled

INDPTR, INDICES = torch.tensor([0, 2, 3, 3]), torch.tensor([0, 2, 1], dtype=torch.int32)

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("indptr is a list: expected a tensor of int64", {"indptr": [0, 3]}),
    ("indptr is int32 of shape", {"indptr": INDPTR.int()}),
    ("indices is float32 of shape", {"indices": INDICES.float()}),
    ("indices is int32 of shape \\(3, 1\\)", {"indices": INDICES[:, None]}),
    ("indices is not contiguous: give indices.contiguous", {"indices": INDICES.repeat(2)[::2]}),
    ("indptr runs from 0 to 4: expected 0 to 3", {"indptr": torch.tensor([0, 2, 3, 4])}),
    ("indptr runs from 1 to 3", {"indptr": torch.tensor([1, 2, 3, 3])}),
    ("indptr is empty", {"indptr": INDPTR[:0]}),
    ("indptr decreases", {"indptr": torch.tensor([0, 10**9, 2, 3])}),
    ("indices run from 0 to 3: expected columns 0 to 2", {"indices": torch.tensor([0, 3, 1])}),
    ("indices run from -1 to 2", {"indices": torch.tensor([0, 2, -1])}),
    ("num_columns is 2.5", {"num_columns": 2.5}),
    ("num_columns is -1", {"num_columns": -1}),
]


@pytest.mark.parametrize(("sentence", "changes"), WRONG)
@pytest.mark.parametrize("kind", [Adjacency, Block])
def test_a_pattern_that_leads_out_of_its_columns_is_refused(
    kind: Any, sentence: str, changes: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"indptr": INDPTR, "indices": INDICES, "num_columns": 3, **changes}
    with pytest.raises(ShoalError, match=sentence):
        kind(**fields)


def test_what_belongs_to_entries_rows_and_columns_has_their_number() -> None:
    for name, expected in (("values", "3 entries"), ("row_scale", "3 rows"), ("column_scale", "4 columns")):
        with pytest.raises(
            ShoalError,
            match=f"{name} is float32 of shape \\(2,\\): expected one value for each of {expected}",
        ):
            Adjacency(INDPTR, INDICES, 4, **{name: torch.ones(2)})
    for name, expected in (("edge_norm", "3 entries"), ("degree", "4 columns"), ("has_loop", "4 columns")):
        with pytest.raises(ShoalError, match=f"{name} is .* expected one value for each of {expected}"):
            Block(INDPTR, INDICES, 4, **{name: torch.ones(2)})
    with pytest.raises(ShoalError, match=r"values is .*: expected one value for each of 3 entries"):
        Adjacency(INDPTR, INDICES, 4).with_values(torch.ones(2))
    with pytest.raises(ShoalError, match="3 rows and 4 columns: a symmetric one is square"):
        Adjacency(INDPTR, INDICES, 4, symmetric=True)
    with pytest.raises(ShoalError, match="3 rows and 2 columns: expected at least as many columns as rows"):
        Block(INDPTR, INDICES.clamp(max=1), 2)


def test_a_scipy_matrix_with_changed_arrays_is_refused() -> None:
    for name, at, value in (("indices", 1, 10**8), ("indices", 0, -1), ("indptr", 1, 10**8)):
        matrix = sp.csr_array((np.ones(2), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 2))
        getattr(matrix, name)[at] = value
        for read in (shoal.Graph.from_scipy, Adjacency.from_scipy):
            with pytest.raises(ShoalError, match="the csr_array is damaged"):
                read(matrix)


PART: list[tuple[str, dict[str, Any]]] = [
    ("n_id is a list", {"n_id": [0, 1]}),
    ("n_id runs from", {"n_id": np.arange(20) + 100}),
    ("halo_id runs from", {"halo_id": np.arange(20) + 30}),
    ("local_indices runs from", {"local_indices": 10**6}),
    ("halo_indices runs from", {"halo_indices": 10**6}),
    ("send_rows runs from", {"send_rows": 10**6}),
    ("local_indptr does not rise", {"local_indptr": 10**6}),
    ("send_offsets is int64 of shape", {"send_offsets": np.zeros(9, np.int64)}),
    ("degree is int64 of shape", {"degree": np.zeros(3, np.int64)}),
    ("keep is int8 of shape", {"keep": np.zeros(3, np.int8)}),
    ("x is float64 of shape", {"x": np.zeros((20, 4))}),
    ("x is a list", {"x": [1]}),
    ("y runs from", {"y": np.full(20, 99)}),
    ("train_mask is int64", {"train_mask": np.zeros(20, int)}),
    ("rank is 2: expected a whole number from 0 to 1", {"rank": 2}),
]


@pytest.fixture(scope="module")
def part() -> Part:
    return make_part(make_labelled(40), np.arange(40) % 2, 2, 0)


@pytest.mark.parametrize(("sentence", "changes"), PART)
def test_a_part_whose_arrays_do_not_belong_together_is_refused(
    part: Part, sentence: str, changes: dict[str, Any]
) -> None:
    for name, value in changes.items():
        if isinstance(value, int) and name != "rank":  # one odd number in the middle
            changed = np.array(getattr(part, name))
            changed[len(changed) // 2] = value
            changes = {name: changed}
    with pytest.raises(ShoalError, match=sentence):
        replace(part, **changes)
    assert replace(part).num_local == 20


def test_a_sampler_that_draws_nodes_which_are_not_there_is_refused() -> None:
    class Odd(shoal.NodeSampler):
        drawn = np.array([0, 5, 10**9])

        def draw_nodes(self, k: int) -> np.ndarray:
            return self.drawn

    sampler = Odd(make_labelled(40), budget=10)
    wrong = r"^Odd\.draw_nodes returned a wrong batch: nodes run from 0 to 1000000000: the graph has 40 nodes"
    with pytest.raises(ShoalError, match=wrong):
        sampler.sample(0)
    with pytest.raises(ShoalError, match="nodes run from 0 to 1000000000: the graph has 40 nodes"):
        shoal.NodeSampler(make_labelled(40), budget=10).extract(sampler.drawn)
    sampler.drawn = np.array([5, 0])
    with pytest.raises(ShoalError, match="node 0 follows node 5"):
        sampler.sample(0)
