"""Work, what a partition method is given; traits, what it declares; the registry of methods.

@PARTITION_METHODS.named("parity")
@traits(node_bytes=8)
def assign_by_parity(work: Work, *, first: Annotated[int, AtLeast(0), "the first node's part"] = 0) -> np.ndarray:
    return (np.arange(work.graph.num_nodes) + first) % work.num_parts
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from shoal.graph import Graph
from shoal.partitioning.nets import Nets
from shoal.partitioning.refine import refine_assignment
from shoal.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
Method: TypeAlias = Callable[..., np.ndarray]

EFFORTS = ("fast", "default", "best")

PARTITION_METHODS: Registry[Method] = Registry("partition method", "shoal.partitioning.methods")


@dataclass
class Work:
    """One call of partition_graph, as a method sees it.

    A method is called with a Work and its settings and returns the part of every node, from 0 to num_parts - 1.

    Attributes:
        graph: has at least one entry and more nodes than parts.
        num_parts: at least 2.
        weights: int64, weight of each node.
        max_weight: most weight of a part.
        imbalance: excess of `max_weight` over the average, as a share.
        seed: decides every random choice.
        threads: how many the method may use.
        refine: whether a method with the trait `refines` searches locally.
        progress: called by `time` with each step's name.
        notices: sentences for the user, to append to.
        seconds: of each step, recorded by `time`.
    """

    graph: Graph
    num_parts: int
    weights: np.ndarray
    imbalance: float = 0.01
    seed: int = 0
    threads: int = 1
    refine: bool = False
    progress: Callable[[str], None] = lambda step: None
    notices: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def max_weight(self) -> float:
        """Weight that no part may exceed."""
        return (1 + self.imbalance) * -(-int(self.weights.sum()) // self.num_parts)

    def time(self, step: str, run: Callable[[], Any]) -> Any:
        """Run a step, report and time it under its name; returns its result.

        Args:
            step: name of the step.
            run: function that runs the step.
        """
        self.progress(step)
        began = time.perf_counter()
        result = run()
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - began
        return result

    def search(self, nets: Nets, assignment: np.ndarray, **settings: Any) -> np.ndarray:
        """A better partition near `assignment` (see `refine_assignment`).

        Args:
            nets: the nets whose cost is lowered.
            assignment: int32 (num_nodes,), the part of every node to start from.
            settings: settings of the search.
        """
        arguments = (nets, assignment, self.weights, self.num_parts, self.max_weight)
        settings = {"seed": self.seed, **settings}
        found: np.ndarray = self.time("local search", lambda: refine_assignment(*arguments, **settings))
        return found


@dataclass(frozen=True)
class Traits:
    """What a method declares.

    Attributes:
        entry_bytes, node_bytes: memory it takes for each stored entry and each node of the graph, in addition to the graph.
        pair_bytes: the same for each pair of parts, of up to 4,096 parts.
        needs: modules that must be installed, each with what to `pip install` for it.
        preference: `auto` takes the method with the lowest preference that is installed and fits in memory; None for never.
        refines: it has a local search of its own, unless refine=False; other methods' results are searched with refine=True.
        balances: it keeps parts within the imbalance.
        for_covers: it lowers rows and sums sent by covers, not rows.
        max_entries: most entries of a graph that it can handle; None for any.
    """

    entry_bytes: int = 0
    node_bytes: int = 24
    pair_bytes: int = 0
    needs: Mapping[str, str] = field(default_factory=dict)
    preference: int | None = None
    refines: bool = False
    balances: bool = True
    for_covers: bool = False
    max_entries: int | None = None


def traits(**told: Any) -> Callable[[F], F]:
    """A decorator that attaches Traits to a method.

    Args:
        told: fields of Traits by name.
    """

    def attach(method: F) -> F:
        method.traits = Traits(**told)  # type: ignore[attr-defined]
        return method

    return attach


def traits_of(method: Method) -> Traits:
    """A method's traits; one without any is assumed to hold a few numbers per node."""
    found: Traits = getattr(method, "traits", Traits())
    return found


def find_method(method: str | Method) -> Method:
    """A method by its registered name, or a function of the user's own as it is."""
    return PARTITION_METHODS[method] if isinstance(method, str) else method


def name_method(method: str | Method) -> str:
    """Name of a method."""
    return method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)


def weigh_nodes(graph: Graph, balance: str) -> np.ndarray:
    """Weight of every node: the entries of its row in A + I, or 1."""
    if balance == "nodes":
        return np.ones(graph.num_nodes, np.int64)
    return np.asarray(graph.degree, np.int64) + 1
