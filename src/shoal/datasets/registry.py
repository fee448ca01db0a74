"""Dataset: what is known of a published graph before it is fetched; look-up of the registered ones by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from shoal.errors import unknown_name


@dataclass(frozen=True)
class BuiltIn:
    """A graph that needs no file: it ships with the package, or is drawn from a seed."""

    title: str
    licence: str = ""


BUILT_IN = {
    "digits": BuiltIn(
        "handwritten digits, joined to their nearest neighbours (ships with Shoal)", "CC-BY-4.0"
    ),
    "blocks": BuiltIn("stochastic block model with features and labels, any size (drawn from a seed)"),
    "kronecker": BuiltIn("power-law R-MAT graph, any scale (drawn from a seed)"),
}


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch. `size` in bytes where the publisher states it, else None: then the server's is used."""

    url: str
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Score:
    """A published result that a run on this dataset can be held against."""

    value: float
    metric: str
    model: str
    source: str


@dataclass(frozen=True)
class Dataset:
    """A published graph: where it comes from, how it is read, what it must contain.

    `num_edges` counts edges of an undirected graph once and arcs of a directed one, as published.
    `files` is empty where the publisher offers no direct address: then `page` is where a person fetches it.
    `format` and `options` are those of `shoal data import`; `folder` is the part of the unpacked files to import.
    """

    name: str
    title: str
    page: str
    licence: str
    num_nodes: int
    num_edges: int
    format: str
    files: tuple[RemoteFile, ...] = ()
    folder: str = "."
    num_features: int = 0
    num_classes: int = 0
    multi_label: bool = False
    directed: bool = False
    split: str | None = None
    task: str | None = None
    score: Score | None = None
    reference: str = ""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def by_hand(self) -> bool:
        """Whether a person has to fetch it: the publisher gives no address of the files themselves."""
        return not self.files

    @property
    def import_line(self) -> str:
        """The command that turns the publisher's files, once fetched, into a stored graph."""
        return f"shoal data import FOLDER -o {self.name} --format {self.format}"


@cache
def registered() -> Mapping[str, Dataset]:
    """Every registered dataset by name."""
    from shoal.datasets.catalogue import DATASETS

    return MappingProxyType({dataset.name: dataset for dataset in DATASETS})


def find_dataset(name: str) -> Dataset:
    """The registered dataset called `name`; an unknown one is refused with the nearest known."""
    datasets = registered()
    if name not in datasets:
        raise unknown_name("dataset", name, (*datasets, *BUILT_IN))
    return datasets[name]
