"""DataFrames as graphs: written to temporary Parquet files that the table importer reads, so that both encode alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError
from shoal.settings import check_options, list_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.graph import Graph


def read_frames(edges: Any, nodes: Any, name: str, directed: bool | None, options: dict[str, Any]) -> Graph:
    """The graph of an edge and a node table in memory; `options` are settings of the table importer.

    Errors and notices name the tables `edges` and `nodes`.
    """
    import pyarrow.parquet as pq

    from shoal.datasets.formats import FORMATS

    reader = FORMATS["table"]
    joined = {
        key: ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        for key, value in options.items()
        if value is not None
    }
    index = getattr(getattr(nodes, "index", None), "name", None)
    if index is not None and "id" not in joined:
        joined["id"] = str(index)
    checked = check_options(list_settings(reader), joined, what="from_pandas")
    with tempfile.TemporaryDirectory(prefix="shoal-") as place:
        folder = Path(place)

        def clean(text: str) -> str:
            return text.replace(f"{folder}/", "").replace(".parquet", "").replace(str(folder), "the tables")

        for stem, frame in (("edges", edges), ("nodes", nodes)):
            if frame is not None:
                pq.write_table(_to_arrow(stem, frame), folder / f"{stem}.parquet")
        try:
            graph: Graph = reader(folder, name=name, directed=directed, **checked)
        except ShoalError as error:
            raise ShoalError(clean(str(error))) from None
    graph.notices = tuple(map(clean, graph.notices))
    return graph


def _to_arrow(what: str, frame: Any) -> pa.Table:
    """A DataFrame or an Arrow table as an Arrow table; an index with a name is a column."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if not hasattr(frame, "columns") or not hasattr(frame, "index"):
        raise ShoalError(
            f"{what} is a {type(frame).__name__}: expected a DataFrame of pandas, or an Arrow table"
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=frame.index.name is not None)
    except (pa.ArrowException, ValueError, TypeError) as error:
        said = "; ".join(map(str, error.args)) or type(error).__name__
        raise ShoalError(f"{what} cannot be read: {said}: give each column values of one type") from None
