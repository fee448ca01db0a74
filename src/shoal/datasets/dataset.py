"""Dataset: the description of a published graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch. `size` in bytes if the publisher states it; None: the server's is used. `sha256` if it is known;
    None: later downloads must match the first one."""

    url: str
    name: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Score:
    """A published result to compare a run on this dataset with."""

    value: float
    metric: str
    model: str
    source: str


@dataclass(frozen=True)
class Dataset:
    """A published graph: where it comes from, how it is read, what it must contain.

    `num_edges` counts edges of an undirected graph once and arcs of a directed one, as published.
    `files` is empty if the publisher offers no direct download: then it is fetched by hand from `page`.
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
        """Whether it has to be fetched by hand, because the publisher offers no direct download."""
        return not self.files

    @property
    def import_line(self) -> str:
        """The command that turns the publisher's files, once fetched, into a stored graph."""
        return f"shoal data import FOLDER -o {self.name} --format {self.format}"
