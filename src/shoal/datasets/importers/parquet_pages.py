"""Sizes that the page headers of a Parquet file claim, held against the file before Arrow takes memory for them.

Arrow takes as much memory as a page says that it unpacks to, up to 2 GB, before it looks at the page.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq

from shoal.errors import ShoalError

_LARGE = 1 << 26  # bytes that any page may unpack to
_MOST_PACKED = 1100  # times its own size that a larger one may unpack to
_HEADERS = (1 << 10, 1 << 24)  # bytes of a header: usual, and the most that Arrow reads
_DEEPEST = 16
_ENDS, _TRUTH, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (
    *(0, (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12),
)


def check_pages(path: Path, metadata: pq.FileMetaData, columns: Collection[str]) -> None:
    """Refuse a file with a page of one of the columns that claims more bytes than it can have."""
    with open(path, "rb") as file:
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for number in range(row_group.num_columns):
                chunk = row_group.column(number)
                path_of = chunk.path_in_schema
                if any(path_of == one or path_of.startswith(f"{one}.") for one in columns):
                    try:
                        _check_chunk(file, chunk)
                    except (ValueError, IndexError, OSError) as error:
                        raise ShoalError(
                            f"{path} is damaged: a page of column {chunk.path_in_schema!r} {error}"
                        ) from None


def _check_chunk(file: IO[bytes], chunk: pq.ColumnChunkMetaData) -> None:
    if chunk.num_values == 0:
        return
    offsets = [chunk.data_page_offset]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        offsets.append(chunk.dictionary_page_offset)
    place = min(offsets)
    end = place + chunk.total_compressed_size
    while place < end:
        unpacked, packed, length = _read_header(file, place)
        if not 0 <= unpacked <= max(_LARGE, _MOST_PACKED * packed):
            raise ValueError(f"of {packed:,} bytes claims to unpack to {unpacked:,}")
        place += length + packed
        if packed < 0 or place > end:
            raise ValueError(f"has {packed:,} bytes, which is not what the file says of its column")


def _read_header(file: IO[bytes], place: int) -> tuple[int, int, int]:
    """(bytes unpacked, bytes in the file, bytes of the header) of the page at `place`."""
    for most in _HEADERS:
        file.seek(place)
        reader = _Thrift(file.read(most))
        try:
            fields = reader.read_struct()
        except IndexError:
            if most == _HEADERS[-1] or len(reader.content) < most:
                raise ValueError("has no whole header") from None
            continue
        if 2 not in fields or 3 not in fields:
            raise ValueError("does not say its size")
        return fields[2], fields[3], reader.place
    raise AssertionError("a header was neither read nor refused")


class _Thrift:
    """Thrift's compact protocol, as far as page headers need it: numbers of the outer struct, all else passed over."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """The whole numbers among a struct's fields."""
        if depth > _DEEPEST:
            raise ValueError("has a header that is nested too deeply")
        numbers, field = {}, 0
        while (first := self._byte()) != _ENDS:
            field = field + (first >> 4) if first >> 4 else self._number()
            kind = first & 15
            if kind in _NUMBERS:
                numbers[field] = self._number()
            elif kind not in _TRUTH:  # a truth value is its kind
                self._pass(kind, depth)
        return numbers

    def _pass(self, kind: int, depth: int) -> None:
        if kind in (_BYTE, *_TRUTH):
            self._byte()
        elif kind in _NUMBERS:
            self._number()
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind in _LISTS:
            first = self._byte()
            for _ in range(self._varint() if first >> 4 == 15 else first >> 4):
                self._pass(first & 15, depth + 1)
        elif kind == _STRUCT:
            self.read_struct(depth + 1)
        elif kind == _MAP and (count := self._varint()):
            kinds = self._byte()
            for _ in range(count):
                self._pass(kinds >> 4, depth + 1)
                self._pass(kinds & 15, depth + 1)
        elif kind != _MAP:
            raise ValueError("has a header that is none")

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.content):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("has a number that is too long")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
