"""Every figure, table and theorem of the four papers: the experiments that make it, or why it is not made here.

`pages.py` writes the list to docs/papers/items.md; tests hold it in step with what experiments say of their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PAPERS = ("IPDPS'19", "JPDC'21", "VLDB'22", "BNS-GCN")
_DRAWING = "A drawing of the method, without measurements."


@dataclass(frozen=True)
class Item:
    """One figure, table or theorem.

    Args:
        paper: one of `PAPERS`.
        name: as the paper numbers it, `figure 4C`.
        shows: what it shows.
        made: experiments, files of benchmarks/papers without `.py`.
        left: what of it is not made here, and why; all of it where `made` is empty.
    """

    paper: str
    name: str
    shows: str
    made: tuple[str, ...] = ()
    left: str = ""


def _list(paper: str, *rows: tuple[str, str, str, str]) -> tuple[Item, ...]:
    return tuple(Item(paper, name, shows, tuple(made.split()), left) for name, shows, made, left in rows)


_TWO_CORES = "Two cores end the curves at 2 threads"
ITEMS = (
    *_list(
        "IPDPS'19",
        ("figure 1", "layer sampling and graph sampling", "", _DRAWING),
        ("figure 2", "F1 against training time", "score_against_time", "wordnet30 in place of Reddit; Yelp and Amazon are not here."),
        ("figure 3", "scaling and breakdown of training", "scaling breakdown", f"{_TWO_CORES}."),
        ("figure 4A", "samplers side by side", "scaling", f"{_TWO_CORES}."),
        ("figure 4B", "vector instructions in sampling", "vector_instructions", ""),
        ("table I", "graphs", "graphs", ""),
        ("table II", "epochs against GraphSAGE by depth", "depth", "2 threads, there 1 to 40 cores."),
        ("theorem 1", "speed-up of the Dashboard", "theorem1", ""),
        ("theorem 2", "traffic of feature partitions", "theorem2", ""),
    ),
    *_list(
        "JPDC'21",
        ("figure 1", "layer sampling and graph sampling", "", _DRAWING),
        ("figure 2", "F1 against training time", "score_against_time", "wordnet30 in place of Reddit; Yelp and Amazon are not here."),
        ("figure 3 A to F", "scaling of training and its parts", "scaling", f"{_TWO_CORES}."),
        ("figure 3 G and H", "breakdown of an iteration", "breakdown", "Its shares are not printed."),
        ("figure 4A", "frontier samplers side by side", "scaling", f"{_TWO_CORES}."),
        ("figure 4B", "vector instructions in sampling", "vector_instructions", ""),
        ("figure 4C", "random-walk samplers side by side", "scaling", f"{_TWO_CORES}."),
        ("figure 4D", "edge samplers side by side", "scaling", f"{_TWO_CORES}."),
        ("figure 5", "iteration against size and degree", "kronecker_sweep", "Up to 2¹⁹ nodes, there 2²⁵."),
        ("figure 6", "misses against cache size", "theorem2", "One product, not a whole iteration."),
        ("figure 7", "nodes sampled by layer", "depth", "Nodes of a batch, not of each layer."),
        ("figure 8", "training time by depth", "depth", ""),
        ("table 1", "symbols", "", "A list of symbols."),
        ("table 2", "graphs", "graphs", ""),
        ("table 3", "iteration on CPU and GPU", "breakdown", "No GPU; PPI alone of its four graphs is here."),
        ("theorem 1", "speed-up of the Dashboard", "theorem1", ""),
        ("theorem 2", "traffic of feature partitions", "theorem2", ""),
        ("§6", "order of products, node clipping", "scheduler", ""),
        ("§8", "sampling of parts, shuffled", "", "No experiment there; [measured here](../samplers.md#several-ranks)."),
    ),
    *_list(
        "VLDB'22",
        ("figure 1", "communication of a layer", "", _DRAWING),
        ("figure 2", "hypergraph of a small graph", "", _DRAWING),
        ("figure 3", "strong scaling", "strong_scaling", "No GPU; beyond 8 processes on 2 cores predicted; one of its graphs."),
        ("figure 4a", "communication and computing", "broadcast", "Predicted; coPapersDBLP is not here."),
        ("figure 4b", "layers and dimensions", "deeper_networks", "Predicted; roadNet-CA is not here."),
        ("figure 4c", "accuracy on more processors", "parity", ""),
        ("figure 5", "mini-batches, HP and SHP", "minibatches", "Beyond 2 processors times are predicted."),
        ("table 1", "graphs", "graphs", ""),
        ("table 2, volume and messages", "HP and GP over RP", "volumes", "5 of its 8 graphs are here or have a stand-in, 2 more at larger profiles."),
        ("table 2, R and S", "times of HP and GP", "strong_scaling deeper_networks", "Predicted; S is over DGL on 16 cores."),
        ("table 3", "papers100M", "billion_edges", "Predicted from stand-ins: 1.6 billion arcs do not fit here."),
        ("table 4", "other systems on Reddit", "other_systems", "ROC, Dorylus and DGCL are not run."),
    ),
    *_list(
        "BNS-GCN",
        ("figure 1", "ways of distributed training", "", _DRAWING),
        ("figure 2", "partition-parallel training", "", _DRAWING),
        ("figure 3", "boundary over inner nodes, 192 parts", "boundary_memory", "papers100M is not here."),
        ("figure 4", "throughput by method", "throughput", "ROC and CAGNET themselves need GPUs: their ideas in Shoal."),
        ("figure 5", "breakdown of an epoch", "throughput", "2 ranks and 4 hosts, there 2 to 10 GPUs."),
        ("figure 6", "memory saved", "boundary_memory", "By the model; ranks were measured before."),
        ("figure 7", "convergence on ogbn-products", "convergence", "One number of parts."),
        ("figure 8", "balance of memory, 192 parts", "boundary_memory", "By the model."),
        ("figure 9", "convergence on Reddit and Yelp", "convergence", "One graph."),
        ("table 1", "boundary and inner nodes", "boundary_memory", ""),
        ("table 2", "variance of methods", "variance", "VR-GCN's is of differences to a history."),
        ("table 3", "graphs", "graphs", ""),
        ("table 4, BNS-GCN", "scores by p", "rates edge_sampling random_parts", ""),
        ("table 4, others", "scores by method", "sampling_methods", ""),
        ("table 5", "training time by method", "sampling_methods", ""),
        ("table 6", "breakdown on papers100M", "parts192", "Predicted: 192 GPUs."),
        ("table 7", "scores on random parts", "random_parts", ""),
        ("table 8", "throughput, memory, boundary on random parts", "random_parts", ""),
        ("table 9", "edge sampling", "edge_sampling", ""),
        ("table 10", "GAT", "throughput", ""),
        ("table 11", "epochs of sampling methods", "sampling_methods", ""),
        ("table 12", "overhead of sampling", "sampling_overhead", ""),
        ("table 13", "scores with p between 0.1 and 1", "choice_of_p", ""),
        ("appendix A", "bound of the variance", "variance", ""),
        ("§3.2", "cost of partitioning", "partition_overhead", "No time is printed."),
    ),
)  # fmt: skip


def tabulate(paper: str, link: Callable[[str], str]) -> list[list[str]]:
    """The items of a paper, the header first; `link` writes an experiment's name."""
    table = [["item", "shows", "made by", "not made here"]]
    for item in ITEMS:
        if item.paper == paper:
            made = ", ".join(link(name) for name in item.made) or "–"
            table.append([item.name, item.shows, made, item.left or "–"])
    return table
