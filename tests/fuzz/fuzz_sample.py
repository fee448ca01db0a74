"""What a sample is: valid files of one format, how they are read, and a digest of what was read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from shoal.graph import MASKS, Graph
from shoal.kernels.encoding import EncodedRows
from shoal.names import Names
from shoal.sampling.neighbor import NeighborSampler

N = 40


class Read(NamedTuple):
    """What a reader made of its files: a digest of the content, and what was said about it."""

    content: str
    notices: tuple[str, ...] = ()


class Sample(NamedTuple):
    """How valid files are made in a folder and how they are read.

    `checked`: damage cannot be taken for other content, as there are checksums.
    `vouched`: files are changed by somebody who mends the checksums too, so that other content is to be expected.
    Neither: there are no checksums.
    """

    make: Callable[[Path], Any]
    read: Callable[[Path], Read]
    checked: bool = False
    vouched: bool = False

    @property
    def checksums(self) -> str:
        """What the files' checksums are after a change: wrong, mended, or none that they have."""
        return "wrong" if self.checked else "mended" if self.vouched else "none"


SAMPLES: dict[str, Sample] = {}


def sample(name: str, read: Callable[[Path], Read], **kinds: bool) -> Callable[[Any], Any]:
    def add(make: Callable[[Path], Any]) -> Any:
        SAMPLES[name] = Sample(make, read, **kinds)
        return make

    return add


_used: set[str] = set()


def digest(*values: Any) -> str:
    """A digest of arrays, texts and numbers."""
    total = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.numpy()
        if isinstance(value, np.ndarray):
            total.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        else:
            total.update(repr(value).encode())
    return total.hexdigest()


def digest_graph(graph: Graph) -> Read:
    """All of a graph but its name; kernels read it the first time."""
    x, ids = graph.x, graph.node_ids
    if isinstance(x, EncodedRows):
        x = x.codes
    parts = (x.data, x.indices, x.indptr, x.shape) if sp.issparse(x) else (x,)
    named = list(ids) if isinstance(ids, Names) else ids
    masks = [getattr(graph, mask) for mask in MASKS]
    facts = (graph.directed, graph.num_classes, graph.class_names, graph.num_edges)
    content = digest(graph.indptr, graph.indices, *parts, graph.y, *masks, named, *facts)
    if content not in _used:
        _used.add(content)
        NeighborSampler(graph, fanouts=[2, 2], batch_size=8).sample(0)
        graph.subgraph(np.arange(graph.num_nodes // 2))
    return Read(content, graph.notices)


def make_graph(**changes: Any) -> Graph:
    rng = np.random.default_rng(0)
    fields = {"x": rng.random((N, 4), np.float32), "y": rng.integers(0, 3, N), "name": "small", **changes}
    return Graph.from_edge_index(rng.integers(0, N, (2, 90)), N, directed=False, **fields).with_split()


def arrays_of(graph: Graph) -> dict[str, Any]:
    return {name: getattr(graph, name) for name in ("indptr", "indices", "y", *MASKS)}
