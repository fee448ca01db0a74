"""Names: one string per node in two flat arrays, so that millions of ids can be memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from shoal.errors import ShoalError

if TYPE_CHECKING:
    import pyarrow as pa


class Names(Sequence[str]):
    """A read-only sequence of strings: string i is the UTF-8 in `text[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, offsets: np.ndarray, text: np.ndarray) -> None:
        self.offsets = offsets
        self.text = text

    @classmethod
    def from_arrow(cls, array: pa.LargeStringArray) -> Names:
        """From an Arrow array of large strings without nulls."""
        _, offsets, text = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        content = np.frombuffer(text, np.uint8) if text is not None else np.empty(0, np.uint8)
        return cls(ends - ends[0], content[ends[0] : ends[-1]])

    def to_arrow(self) -> pa.LargeStringArray:
        """The names as an Arrow array, without copying."""
        import pyarrow as pa

        return pa.LargeStringArray.from_buffers(
            len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.text)
        )

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Names:
        """Names from Python strings."""
        encoded = [text.encode() for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(encoded), np.uint8))

    def take(self, nodes: np.ndarray) -> Names:
        """The strings of `nodes`, in their order."""
        starts = self.offsets[nodes]
        offsets = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(self.offsets[nodes + 1] - starts, out=offsets[1:])
        at = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))
        return Names(offsets, self.text[at])

    def fits(self) -> bool:
        """Whether the offsets have the right dtype and span exactly the text; reads the first and the last one."""
        return (
            self.offsets.dtype == np.int64
            and self.text.dtype == np.uint8
            and len(self.offsets) > 0
            and self.offsets[0] == 0
            and int(self.offsets[-1]) == len(self.text)
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return (
            f"Names({', '.join(map(repr, self[:3]))}{', …' if len(self) > 3 else ''}, {len(self):,} in all)"
        )

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[one] for one in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        return bytes(self.text[self.offsets[i] : self.offsets[i + 1]]).decode(errors="replace")


class Called(NamedTuple):
    """Node ids and class names, None if they are just numbers; `multi_label` if a node may have several classes."""

    node_ids: np.ndarray | Names | None
    class_names: Sequence[str] | None
    num_classes: int
    multi_label: bool = False


ID_TEXTS = ("node_id_offsets", "node_id_text")
ID_ARRAYS = ("node_ids", *ID_TEXTS)


def list_id_arrays(ids: np.ndarray | Names | None) -> dict[str, np.ndarray]:
    """The arrays that ids are stored as."""
    if isinstance(ids, Names):
        return dict(zip(ID_TEXTS, (ids.offsets, ids.text)))
    return {} if ids is None else {"node_ids": ids}


def read_ids(arrays: Mapping[str, np.ndarray], folder: Path) -> np.ndarray | Names | None:
    """Ids from the arrays that they were stored as in `folder`."""
    if ID_TEXTS[0] not in arrays:
        return arrays.get("node_ids")
    names = Names(arrays[ID_TEXTS[0]], arrays[ID_TEXTS[1]])
    if not names.fits():
        raise ShoalError(
            f"{folder} is damaged: {ID_TEXTS[0]} does not fit {ID_TEXTS[1]}; import the graph again"
        )
    return names


def name_nodes(nodes: Sequence[Any]) -> np.ndarray | Names | None:
    """Node ids of any type in the form that a Graph stores: None for 0, 1, 2, …, an integer array, or Names."""
    if all(type(node) is int and -(2**63) <= node < 2**63 for node in nodes):
        return None if list(nodes) == list(range(len(nodes))) else np.array(nodes, np.int64)
    return Names.from_texts([str(node) for node in nodes])


def take_ids(ids: np.ndarray | Names | None, nodes: np.ndarray, num_nodes: int) -> np.ndarray | Names | None:
    """The ids of some increasing nodes, given the `ids` of all nodes."""
    if ids is None:
        return nodes if len(nodes) < num_nodes else None
    return ids.take(nodes) if isinstance(ids, Names) else np.asarray(ids)[nodes]


def name_classes(numbers: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Single-label classes by name, if there are `names`; multi-label matrices and targets as they are."""
    if names is None or numbers.ndim > 1 or numbers.dtype.kind != "i":
        return numbers
    return np.array(names)[numbers]
