"""Validation of the sizes that page headers of a Parquet file declare, before Arrow allocates memory for them.

Arrow allocates the declared uncompressed size of a page, up to 2 GB, before it reads the page.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from shoal.errors import ShoalError

_LARGE = 1 << 26  # uncompressed bytes that any page may declare
_MOST_PACKED = 1100  # largest compression ratio of a larger page
_HEADERS = (1 << 10, 1 << 24)  # bytes of a header: usual, and the most that Arrow reads
_DEEPEST = 16
_TAIL = 8  # bytes behind the footer: its length, and the name of the format
_ENDS, _TRUTH, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (
    *(0, (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12),
)


Wanted = dict[int, Any]  # fields to read, each with the fields to read of it

# Fields that are read of a footer: row groups (4), their columns (1), column metadata (3) with the column's path (3).
_NAME = 3
_ABOUT_COLUMN: Wanted = {_NAME: {}}
_FOOTER: Wanted = {4: {1: {3: _ABOUT_COLUMN}}}
_VALUES, _PACKED, _DATA, _DICTIONARY = 5, 7, 9, 11  # fields of column metadata


def check_pages(path: Path, columns: Collection[str]) -> None:
    """Raise if a page of one of the columns declares more bytes than it can have.

    The footer is parsed here, because pyarrow crashes on columns with contradictory metadata.
    """
    with open(path, "rb") as file:
        for about in _list_chunks(file, path):
            name = ".".join(about[_NAME])
            if any(name == one or name.startswith(f"{one}.") for one in columns):
                try:
                    _check_chunk(file, about)
                except (ValueError, IndexError, OSError) as error:
                    raise ShoalError(f"{path} is damaged: a page of column {name!r} {error}") from None


def _list_chunks(file: IO[bytes], path: Path) -> list[dict[int, Any]]:
    """The metadata of every column of every row group, from the footer."""
    size = file.seek(0, os.SEEK_END)
    try:
        file.seek(size - _TAIL)
        length = int.from_bytes(file.read(4), "little")
        file.seek(size - _TAIL - length)
        footer = _Thrift(file.read(length)).read_struct(wanted=_FOOTER)
        found = [column[3] for group in footer.get(4, []) for column in group[1]]
        for about in found:
            about[_NAME] = [part.decode() for part in about[_NAME]]
            if not {_VALUES, _PACKED, _DATA} <= about.keys():
                raise KeyError
    except (ValueError, IndexError, OSError, KeyError, TypeError, AttributeError):
        raise ShoalError(f"{path} is damaged: its footer does not describe its columns") from None
    return found


def _check_chunk(file: IO[bytes], about: dict[int, Any]) -> None:
    if about[_VALUES] == 0:
        return
    place = min(about[_DATA], about.get(_DICTIONARY) or about[_DATA])
    end = place + about[_PACKED]
    while place < end:
        unpacked, packed, length = _read_header(file, place)
        if not 0 <= unpacked <= max(_LARGE, _MOST_PACKED * packed):
            raise ValueError(f"of {packed:,} bytes claims to unpack to {unpacked:,}")
        place += length + packed
        if packed < 0 or place > end:
            raise ValueError(f"has {packed:,} bytes, which contradicts the metadata of its column")


def _read_header(file: IO[bytes], place: int) -> tuple[int, int, int]:
    """(bytes unpacked, bytes in the file, bytes of the header) of the page at `place`."""
    for most in _HEADERS:
        file.seek(place)
        reader = _Thrift(file.read(most))
        try:
            fields = reader.read_struct()
        except IndexError:
            if most == _HEADERS[-1] or len(reader.content) < most:
                raise ValueError("has an incomplete header") from None
            continue
        if 2 not in fields or 3 not in fields:
            raise ValueError("does not declare its size")
        return fields[2], fields[3], reader.place
    raise AssertionError("a header was neither read nor refused")


class _Thrift:
    """Thrift's compact protocol, as far as footers and page headers need it: other fields are skipped."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def read_struct(self, depth: int = 0, wanted: Wanted | None = None) -> dict[int, Any]:
        """A struct's integers by field, and the structs and lists in `wanted`, read recursively."""
        if depth > _DEEPEST:
            raise ValueError("has a header that is nested too deeply")
        values: dict[int, Any] = {}
        field, asked = 0, wanted or {}
        while (first := self._byte()) != _ENDS:
            field = field + (first >> 4) if first >> 4 else self._number()
            kind = first & 15
            if kind in _NUMBERS:
                values[field] = self._number()
            elif kind == _STRUCT and field in asked:
                values[field] = self.read_struct(depth + 1, asked[field])
            elif kind in _LISTS and field in asked:
                values[field] = self._read_list(depth + 1, asked[field])
            elif kind not in _TRUTH:  # a boolean's value is in its type
                self._pass(kind, depth)
        return values

    def _read_list(self, depth: int, wanted: Wanted) -> list[Any]:
        """The structs or byte strings of a list."""
        first = self._byte()
        values: list[Any] = []
        for _ in range(self._varint() if first >> 4 == 15 else first >> 4):
            if first & 15 == _STRUCT:
                values.append(self.read_struct(depth, wanted))
            elif first & 15 == _BINARY:
                length = self._varint()
                self._skip(length)
                values.append(self.content[self.place - length : self.place])
            else:
                self._pass(first & 15, depth)
        return values

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
            raise ValueError("has an invalid header")

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
