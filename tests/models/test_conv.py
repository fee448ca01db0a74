"""A conv of one's own: only `forward` is written, and everything that asks a conv works with it."""

from typing import Annotated

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.models.conv import CONVS, Conv, multiply_weight
from shoal.models.neighbourhood import take_rows
from shoal.settings import list_settings
from shoal.training.inference import embed_nodes, predict_logits


class GINConv(Conv):
    """`H' = (A H + (1 + ε) H) W`."""

    name = "gin"
    kind = "sum"
    starts_from_aggregate = True

    def __init__(
        self, in_features: int, out_features: int, *, eps: Annotated[float, "weight of own features"] = 0.0
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps = eps

    def forward(self, adj, h, aggregated=None):
        own = multiply_weight(take_rows(h, 0, adj.num_rows), self.weight)
        return self.aggregate(adj, h, aggregated) + (1 + self.eps) * own


class PlainConv(Conv):
    """`H' = (A H) W`, without any help, and no name."""

    kind = "gcn"

    def forward(self, adj, h):
        return shoal.spmm(adj, h) @ self.weight


class WholeConv(PlainConv):
    """A conv with weights of its own for whole rows, which says nothing of memory."""

    needs_whole_rows = True


def test_a_conv_of_whole_rows_keeps_values_for_every_entry_unless_it_says_so():
    assert WholeConv(3, 2).values_per_entry == 2
    assert PlainConv(3, 2).values_per_entry == 0


@pytest.fixture
def gin(monkeypatch):
    monkeypatch.setattr(CONVS, "_components", dict(CONVS))
    return CONVS.register(GINConv)


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    rng = np.random.default_rng(0)
    x = rng.random((30, 8)) * (rng.random((30, 8)) < 0.3)
    edges = rng.integers(0, 30, (2, 80))
    return shoal.Graph.from_edge_index(edges, 30, directed=True, x=x, y=rng.integers(0, 3, 30))


def test_a_registered_conv_is_used_by_its_name_with_its_settings(gin, graph):
    model = shoal.GNN("gin", 8, 16, 3, eps=0.5, seed=1).eval()
    batch = shoal.FullSampler(graph).sample(0)
    layer, a = model.layers[0], batch.blocks[0].adjacency("sum").to_torch().to_dense()
    expected = (a @ batch.x + 1.5 * batch.x) @ layer.linear.weight
    torch.testing.assert_close(layer.linear(batch.blocks[0].adjacency("sum"), batch.x), expected)
    by_class = shoal.GNN(GINConv, 8, 16, 3, eps=0.5, seed=1).eval()
    assert torch.equal(by_class(batch), model(batch))
    with pytest.raises(shoal.ShoalError, match="eps is a setting of gin: sage has no eps"):
        shoal.GNN("sage", 8, 16, 3, eps=0.5)
    with pytest.raises(shoal.ShoalError, match="eps is 'x': expected a number"):
        shoal.GNN("gin", 8, 16, 3, eps="x")


@pytest.mark.parametrize(("conv", "sparse"), [(GINConv, False), (GINConv, True), (PlainConv, False)])
def test_a_conv_with_only_forward_is_inferred_layer_by_layer(graph, conv, sparse):
    if sparse:
        graph = shoal.Graph(graph.indptr, graph.indices, x=sp.csr_array(graph.x), y=graph.y, directed=True)
    model = shoal.GNN(conv, 8, 16, 3, num_layers=3, residual=True).eval()
    batch = shoal.FullSampler(graph).sample(0)
    torch.testing.assert_close(embed_nodes(model, batch, rows_at_once=7), model.embed(batch))
    mask = torch.arange(30) % 3 == 0
    torch.testing.assert_close(predict_logits(model, batch, rows=mask, rows_at_once=7), model(batch)[mask])
    assert model.num_macs(batch) > 0
    assert len(model.explain(batch)) == 3


def test_exchanges_follow_from_what_a_conv_declares():
    narrow, wide = GINConv(8, 4), GINConv(4, 8)
    assert narrow.exchange_widths() == wide.exchange_widths() == [4]
    assert narrow.exchange_widths(first=True, known=True) == narrow.exchange_widths(first=True) == []
    gin = shoal.GNN(GINConv, 8, "16-4", 3)
    assert gin.list_exchanges(sparse=False) == [(2, 4, True, True)]
    assert gin.kinds == {"sum"}
    assert gin.input_widths == [8, 16]
    # It starts from A x; from the halo's features where those change or A x would be dense.
    assert not gin.needs_halo_input(sparse=False)
    assert gin.needs_halo_input(sparse=True)
    assert shoal.GNN(GINConv, 8, 16, 3, input_dropout=0.1).needs_halo_input(sparse=False)
    assert shoal.GNN(PlainConv, 8, 16, 3).needs_halo_input(sparse=False)
    assert not shoal.GNN(GINConv, 8, 16, 3, orders="0-1").needs_halo_input(sparse=True)


def test_built_in_convs_declare_their_exchanges():
    def widths(name, **known):
        return [one.width for one in shoal.GNN(name, 8, 12, 3, num_layers=2).list_exchanges(**known)]

    assert widths("gcn", sparse=False) == [12]
    assert widths("gat", sparse=True) == [4 * 12]  # 4 heads to be averaged
    assert widths("sage", sparse=True) == [6]
    assert widths("mixhop", sparse=False) == [4, 4, 8]  # A x is known: one product less in the first layer
    assert widths("mixhop", sparse=True) == [4, 8, 4, 8]
    assert widths("mlp", sparse=False) == []
    assert shoal.GNN("gat", 8, 12, 3).needs_halo_input(sparse=False)
    assert not shoal.GNN("mixhop", 8, 12, 3).needs_halo_input(sparse=True)
    assert not shoal.GNN("gat", 8, 12, 3).list_exchanges(sparse=False)[0].overlaps


def test_an_unfinished_conv_is_refused():
    class Nothing(Conv):
        kind = "sum"

    class Kindless(Conv):
        def forward(self, adj, h):
            return h

    with pytest.raises(TypeError, match="abstract method"):
        shoal.GNN(Nothing, 8, 16, 3)
    with pytest.raises(shoal.ShoalError, match="Kindless has no `kind`"):
        shoal.GNN(Kindless, 8, 16, 3)


def test_every_model_is_registered_and_owns_its_settings():
    assert {"sage", "gcn", "mixhop", "gat", "mlp"} <= set(CONVS)
    assert [name for name in CONVS if "heads" in list_settings(CONVS[name])] == ["gat"]


def test_any_module_that_takes_a_batch_is_evaluated_by_its_forward(graph):
    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.drop = torch.nn.Linear(8, 3), torch.nn.Dropout(0.9)

        def forward(self, batch):
            return self.drop(self.weight(batch.x))

    model, batch = Linear().train(), shoal.FullSampler(graph).sample(0)
    mask = torch.arange(30) < 10
    assert torch.equal(predict_logits(model, batch, rows=mask), model.weight(batch.x)[mask])
    assert model.training
    with pytest.raises(shoal.ShoalError, match="Linear has no embeddings"):
        embed_nodes(model, batch)


def test_a_batch_knows_the_step_that_decides_dropout(graph):
    model, batch = shoal.GNN("sage", 8, 16, 3, dropout=0.5).train(), shoal.FullSampler(graph).sample(0)
    fifth = model(batch, step=5)
    batch.step = 5
    assert torch.equal(model(batch), fifth)
    assert not torch.equal(model(batch, step=6), fifth)
