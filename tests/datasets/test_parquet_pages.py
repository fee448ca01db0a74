"""Parquet pages: usual files pass, a page that claims more than it can hold is refused before memory is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.datasets.importers.parquet_pages import check_pages
from shoal.errors import ShoalError


def make(path: Path, **options: object) -> pq.FileMetaData:
    rng = np.random.default_rng(0)
    n = 5000
    columns = {"a": rng.random(n), "same": np.zeros(n), "text": [f"node {i}" for i in range(n)]}
    lists = pa.array(rng.random((n, 3)).tolist(), pa.list_(pa.float32()))
    table = pa.table({**columns, "maybe": [None if i % 3 else i for i in range(n)], "x": lists})
    pq.write_table(table, path, row_group_size=2000, data_page_size=4096, **options)
    return pq.ParquetFile(path).metadata


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_usual_files_pass(tmp_path: Path, compression: str, version: str) -> None:
    for dictionary in (True, False):
        path = tmp_path / "t.parquet"
        options = {"compression": compression, "data_page_version": version, "use_dictionary": dictionary}
        metadata = make(path, **options, write_page_checksum=True)
        check_pages(path, metadata.schema.to_arrow_schema().names)


def encode(number: int) -> bytes:
    """Thrift's varint of a number above 0."""
    value, out = number << 1, b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_a_page_that_claims_too_much_is_refused_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": np.arange(40)}), path, use_dictionary=False, compression="none")
    content = path.read_bytes()
    size = content[7:9]  # of the first page; its header says it twice, after a type of 0: unpacked and packed
    assert content[4:12] == b"\x15\x00\x15" + size + b"\x15" + size
    check_pages(path, ["a"])
    for claimed, said in (
        (b"\x15" + encode(2**31 - 1) + b"\x15" + size, "claims to unpack to 2,147,483,647"),
        (b"\x15" + size + b"\x15" + encode(10**6), "has 1,000,000 bytes, which contradicts the metadata"),
        (b"\x15\x01\x15" + size, "claims to unpack to -1"),
        (b"\x1f", "has an invalid header"),
        (b"\xff" * 12, "has a"),
    ):
        path.write_bytes(content[:6] + claimed + content[12:])
        with pytest.raises(ShoalError, match=f"a page of column 'a' .*{said}"):
            check_pages(path, ["a"])
        check_pages(path, ["b"])
