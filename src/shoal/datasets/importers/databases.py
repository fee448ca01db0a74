"""Tables and queries of SQLite and DuckDB files, written to files that are read like any other table."""

from __future__ import annotations

import csv
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import ShoalError
from shoal.wording import list_some

SQLITE, DUCKDB = (".sqlite", ".sqlite3", ".db"), (".duckdb", ".ddb")
_ROWS_AT_ONCE = 1 << 14
_LIST = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
    "duckdb": "SELECT table_name FROM information_schema.tables",
}


def is_database(path: Path) -> bool:
    """Whether a path is a SQLite or DuckDB file."""
    return path.suffix in SQLITE + DUCKDB and path.is_file()


@contextmanager
def export_tables(path: Path, edges: str | None, nodes: str | None) -> Iterator[Path]:
    """Yield a temporary folder with edges.* and nodes.* of a database. `edges` and `nodes` are tables or SELECTs.

    Errors about these files name the database instead.
    """
    with tempfile.TemporaryDirectory(prefix="shoal-") as place:
        folder = Path(place) / path.stem
        folder.mkdir()
        kind = "duckdb" if path.suffix in DUCKDB else "sqlite"
        try:
            with _connect(path, kind, trusted=any(_is_query(one) for one in (edges, nodes))) as database:
                tables = [row[0] for row in database.execute(_LIST[kind]).fetchall()]
                chosen = {
                    "edges": edges or "edges",
                    "nodes": nodes or ("nodes" if "nodes" in tables else None),
                }
                for stem, asked in chosen.items():
                    if asked is not None:
                        query = asked if _is_query(asked) else _select_all(path, asked, tables)
                        _EXPORT[kind](database, query, folder / stem)
            yield folder
        except ShoalError as error:
            raise ShoalError(str(error).replace(f"{folder}/", f"{path}: ")) from None


def _is_query(asked: str | None) -> bool:
    return asked is not None and len(asked.split()) > 1


def _select_all(path: Path, table: str, tables: list[str]) -> str:
    if table not in tables:
        raise ShoalError(
            f"{path} has no table {table!r}: it has {list_some(tables) or 'none'}; name one, or a query, with --option edges=… and --nodes …"
        )
    quoted = table.replace('"', '""')
    return f'SELECT * FROM "{quoted}"'


@contextmanager
def _connect(path: Path, kind: str, *, trusted: bool) -> Iterator[Any]:
    """A read-only connection; errors of the database become ShoalError.

    Views of a DuckDB file may read other files only if the user wrote a query (`trusted`).
    """
    if kind == "sqlite":
        errors: type[Exception] = sqlite3.Error
        with _saying(path, errors):
            connection: Any = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
    else:
        try:
            import duckdb
        except ImportError:
            raise ShoalError(f"{path} needs DuckDB: pip install 'shoal[sql]'") from None
        errors = duckdb.Error
        config = {} if trusted else {"enable_external_access": "false"}
        with _saying(path, errors):
            connection = duckdb.connect(str(path), read_only=True, config=config)
    with closing(connection), _saying(path, errors):
        yield connection


@contextmanager
def _saying(path: Path, errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ShoalError(f"{path} cannot be read as asked: {first}") from None


def _export_sqlite(database: Any, query: str, target: Path) -> None:
    cursor = database.execute(query)
    with open(target.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([column[0] for column in cursor.description or ()])
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            writer.writerows([["" if isinstance(cell, bytes) else cell for cell in row] for row in rows])


def _export_duckdb(database: Any, query: str, target: Path) -> None:
    relation = database.sql(query)
    if relation is None:
        raise ShoalError(f"{query!r:.80} gives no rows: expected a SELECT")
    reader = pa.RecordBatchReader.from_stream(relation)
    with pq.ParquetWriter(target.with_suffix(".parquet"), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


_EXPORT = {"sqlite": _export_sqlite, "duckdb": _export_duckdb}
