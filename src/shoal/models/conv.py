"""Conv: the base class of graph convolutions, and what they declare. CONVS: all of them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from shoal.aggregation import AGGREGATIONS
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.plan import LayerPlan, plan_layer
from shoal.kernels.row_sets import LoopedAdjacency, Rows
from shoal.kernels.spmm import spmm
from shoal.models.edges import check_width, find_block
from shoal.models.layerwise import (
    Input,
    LayerWork,
    Stored,
    count_rows,
    multiply_weight,
    read_rows,
    select_rows,
)
from shoal.models.neighbourhood import take_neighbourhood
from shoal.registry import Registry
from shoal.settings import check_options, list_settings


class ConvStep(NamedTuple):
    """A piece of a conv's forward with at most one aggregation: `compute(adj, z, own)`, `width` columns wide.

    z has the rows that the operator reads: rows of h in the first step, of the previous step's result in later ones.
    `own` are the rows of h for which the result is computed.
    """

    compute: Callable[[Adjacency, Input, Input], Tensor]
    width: int


class Draw(NamedTuple):
    """Inputs of a layer's random numbers: its key in this step, and the global ids of the rows of h."""

    key: int
    ids: Tensor


class Conv(nn.Module, ABC):
    """A layer's linear part, without bias. It maps features of the operator's columns to features of its rows.

    A subclass writes `forward`. Its own settings are annotated parameters of its constructor. The declarations of this
    class fit a forward that calls `aggregate` once; other convs override `exchange_widths`, `exchange_input` and
    `explain`. Layer-wise inference, the simulator and training across ranks use these declarations and never check
    the type of a conv.

    Args:
        in_features: columns of the input.
        out_features: columns of the output.
    """

    name: ClassVar[str]
    kind: str | None  # the aggregation whose operator it takes (`shoal.aggregation`); None: takes no operator
    needs_whole_rows: ClassVar[bool] = False  # a row has no partial sums, as in a softmax over its entries
    starts_from_aggregate: ClassVar[bool] = False  # forward takes a precomputed `A h` as third argument
    default_order: ClassVar[int] = 1  # of a layer, if no pattern is given
    trains_on_rows: ClassVar[bool] = False  # only the first layer is such a conv: batches need no edges
    max_order: ClassVar[int] = 1  # the highest power of the operator
    norm_widths: list[int] | None = None  # widths of parts of the result that layer norm treats separately
    draws: bool = False  # forward takes a `draw` in training
    values_per_entry: int = (
        0  # values that a step keeps for every entry; two for whole rows unless a conv says how many
    )
    projects: bool | None = None  # True: `A (H W)`; False: `(A H) W`; None: the cheaper order
    aggregated_width: int | None = None  # columns of H W that are aggregated; None: all

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if self.needs_whole_rows and not self.values_per_entry:  # an entry's weight and its gradient
            self.values_per_entry = 2
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward(adj, h)`, or PyG's convention: `(x, edge_index)` or `(x, edge_index, edge_weight)`."""
        if len(args) in (2, 3) and isinstance(args[0], Tensor):
            x, edge_index, *weights = args
            check_width(x, self)
            weight = weights[0] if weights else kwargs.pop("edge_weight", None)
            adj = None if self.kind is None else find_block(edge_index, len(x), weight).adjacency(self.kind)
            args = adj, x
        return super().__call__(*args, **kwargs)

    @classmethod
    def make(
        cls, in_features: int, out_features: int, *, order: int = 1, last: bool = False, **settings: Any
    ) -> Self:
        """The conv for one layer.

        Args:
            in_features: columns of the input.
            out_features: columns of the output.
            order: the layer's order in the pattern, such as MixHop's highest power.
            last: whether no later layer aggregates.
            settings: settings of the conv.
        """
        return cls(in_features, out_features, **settings)

    @classmethod
    def prepare_graph(cls, graph: Graph, folder: Path | None = None, **settings: Any) -> Graph:
        """The graph that a model of this conv trains on, made from the loaded one. By default it is unchanged.

        Args:
            graph: the graph that was loaded.
            folder: folder for files that hold what does not fit in memory. None: the system's temporary folder.
            settings: settings of the conv.
        """
        return graph

    @classmethod
    def count_parts(cls, order: int) -> int:
        """Parts that the result concatenates. A last layer that gives logits is that many times wider and sums them.

        Args:
            order: the layer's order in the pattern.
        """
        return 1

    @abstractmethod
    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        """The result, (n, out_features).

        Args:
            adj: operator (n, m).
            h: input (m, in_features). Its first n rows belong to the nodes of the result. Sparse features are an
                Adjacency.
            aggregated: precomputed `adj · h`, if h is fixed and the conv `starts_from_aggregate`.
        """

    def steps(self) -> list[ConvStep]:
        """`forward` in steps of one aggregation each; halo rows are read between steps.

        A conv that aggregates more than once overrides this.
        """
        if self.kind is not None and len(self.exchange_widths()) > 1:
            raise ShoalError(
                f"{conv_name(type(self))} aggregates several times in a layer and has no `steps`: "
                "training parts one after the other needs them"
            )
        return [ConvStep(lambda adj, z, own: self(adj, z), self.out_features)]

    def aggregate(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        """`A H W`, multiplied in the cheaper order, or from a precomputed `A H`. Sparse features stay sparse.

        Args:
            adj: operator (n, m).
            h: input (m, in_features).
            aggregated: precomputed `adj · h`.
        """
        if aggregated is not None:
            return aggregated @ self.weight
        if isinstance(h, Adjacency) or self.projects_first(adj, h):
            return spmm(adj, multiply_weight(h, self.weight))
        return spmm(adj, h) @ self.weight

    def infer(self, adj: Adjacency | None, h: Stored, work: LayerWork) -> Iterator[tuple[Rows, Tensor]]:
        """`forward` over a whole graph without gradients: yields (rows, their result) for all rows that are needed.

        By default a chunk of rows is computed from the rows of h it reads, like a batch of a layered sampler.

        Args:
            adj: operator over all nodes. None: the conv takes none.
            h: input of all nodes, in memory or in files.
            work: which rows are needed, the chunk size, and where partial results are kept.
        """
        if adj is None:
            for rows in work.chunks(count_rows(h)):
                yield rows, self(None, read_rows(h, rows))
        elif isinstance(h, Adjacency) or self.count_hops() is None:
            adj = adj.whole() if isinstance(adj, LoopedAdjacency) else adj
            yield slice(0, adj.num_rows), self(adj, select_rows(h, slice(0, count_rows(h))))
        else:
            for rows, part in work.take(adj):
                yield rows, self(*take_neighbourhood(part, h, rows))

    def count_hops(self) -> int | None:
        """Hops between a row of the result and the rows of h it reads; None if `infer` always computes all rows."""
        if self.kind is None:
            return 0
        hops = len(self.exchange_widths())
        return hops if hops == 1 or type(self).infer is not Conv.infer else None

    def projects_inference(self, h: Stored, work: LayerWork) -> bool:
        """Whether `infer` multiplies by the weight first: if that is less work, or if h must be read in order.

        Args:
            h: input of all nodes.
            work: which rows are needed.
        """
        result, read = work.needed[:2]
        plan = plan_layer(
            result.count,
            read.count,
            result.entries,
            self.in_features,
            self._width,
            needs_input_grad=False,
            training=False,
        )
        return plan.transform_first or not work.is_near(h)

    def exchange_widths(self, *, first: bool = False, known: bool = False) -> list[int]:
        """The width of each halo exchange of a forward pass, in order.

        Args:
            first: whether the layer reads the features. Their halo rows, or `A x`, are exchanged once before training,
                so a first layer that aggregates once exchanges nothing in a step.
            known: whether `A x` is precomputed.
        """
        return [] if first else [self._width if self.projects else min(self.in_features, self._width)]

    def exchange_input(self, *, sparse: bool, training: bool = True) -> tuple[list[int], bool]:
        """Widths of a first layer's exchanges if the input changes every step, and whether gradients are sent back.

        Args:
            sparse: whether the features are sparse.
            training: whether gradients are computed.
        """
        f_in, width, projects = self.in_features, self._width, self.projects
        if projects is None:  # the choice does not depend on the number of rows
            projects = sparse or plan_layer(1, 1, 1, f_in, width, False, training=training).transform_first
        return ([width], True) if projects else ([f_in], False)

    def num_macs(
        self, adj: Adjacency | None, entries: int, own: int, *, first: bool = False, known: bool = False
    ) -> int:
        """Multiply-adds of `forward`.

        Args:
            adj: the operator. None: the conv takes none.
            entries: stored values of h.
            own: stored values of the first n rows of h.
            first: whether h are the features.
            known: whether `A h` is precomputed.
        """
        if adj is None:
            return entries * self.out_features
        rest = own * (self.out_features - self._width)
        if known:
            return own * self._width + rest
        projects = self.projects
        if projects is None:
            projects = self.plan(adj, needs_input_grad=not first).transform_first
        if projects or entries < adj.num_columns * self.in_features:  # sparse features are projected
            return entries * self._width + adj.num_entries * self._width + rest
        return adj.num_entries * self.in_features + own * self._width + rest

    def explain(self, adj: Adjacency, *, first: bool, known: bool, sparse: bool) -> str:
        """The chosen order of multiplication, in words; empty if there is no choice.

        Args:
            adj: the operator.
            first: whether h are the features.
            known: whether `A h` is precomputed.
            sparse: whether the features are sparse.
        """
        if first and sparse:
            return "A (X W): the features are sparse"
        if known:
            return "(A X) W with A X computed once: the batch is always the same"
        return self.plan(adj, needs_input_grad=not first).explain()

    def plan(self, adj: Adjacency, *, needs_input_grad: bool, training: bool = True) -> LayerPlan:
        """Whether `A (H W)` or `(A H) W` is less work here, forward and backward.

        Args:
            adj: the operator.
            needs_input_grad: whether the backward pass computes a gradient of h.
            training: whether there is a backward pass.
        """
        return plan_layer(
            adj.num_rows,
            adj.num_columns,
            adj.num_entries,
            self.in_features,
            self._width,
            needs_input_grad=needs_input_grad,
            training=training,
        )

    def projects_first(self, adj: Adjacency, h: Tensor) -> bool:
        """Whether to compute `A (H W)` for this h: as set in `projects`, else the cheaper order.

        Args:
            adj: the operator.
            h: the input.
        """
        if self.projects is not None:
            return self.projects
        plan = self.plan(adj, needs_input_grad=h.requires_grad, training=torch.is_grad_enabled())
        return plan.transform_first

    @property
    def _width(self) -> int:
        return self.aggregated_width or self.out_features

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


CONVS: Registry[type[Conv]] = Registry("model", "shoal.models")


def find_conv(model: str | type[Conv]) -> type[Conv]:
    """The conv class of a name, or a given class after a check."""
    conv = CONVS[model] if isinstance(model, str) else model
    if not (isinstance(conv, type) and issubclass(conv, Conv)):
        raise ShoalError(f"model is {model!r}: expected a name ({', '.join(CONVS)}) or a subclass of Conv")
    if not hasattr(conv, "kind"):
        raise ShoalError(
            f"{conv_name(conv)} has no `kind`: set the aggregation, {', '.join(AGGREGATIONS)} or None"
        )
    return conv


def check_conv_options(
    conv: type[Conv], options: Mapping[str, Any], model_settings: Iterable[str] = ()
) -> dict[str, Any]:
    """A conv's settings after validation. The error for an unknown one names the conv that has it, or the nearest name."""
    declared = list_settings(conv)
    for option in options:
        if option in declared:
            continue
        owners = [name for name, other in CONVS.items() if option in list_settings(other)]
        if owners:
            raise ShoalError(
                f"{option} is a setting of {' and '.join(owners)}: {conv_name(conv)} has no {option}"
            )
        raise unknown_name(f"setting of model {conv_name(conv)!r}", option, [*model_settings, *declared])
    return check_options(declared, options, what=f"model {conv_name(conv)!r}")


def conv_name(conv: type[Conv]) -> str:
    """The registered name of a conv, or its class name."""
    return getattr(conv, "name", conv.__name__)
