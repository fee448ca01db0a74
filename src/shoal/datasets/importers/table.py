"""CSV and Parquet tables: a table of edges and, optionally, one of nodes, with any integer or string ids."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.cell_numbers import COMMA
from shoal.datasets.importers.column_scan import ColumnOptions
from shoal.datasets.importers.databases import export_tables, is_database
from shoal.datasets.importers.edge_table import (
    END_NAMES,
    choose_ends,
    collect_edge_ids,
    number_edges,
    open_edges,
)
from shoal.datasets.importers.edge_weight_column import WeightColumn, choose_weight, find_number_column
from shoal.datasets.importers.feature_columns import load_columns
from shoal.datasets.importers.files import Progress, silent
from shoal.datasets.importers.node_table import Like, NodeOptions, read_nodes, split_names
from shoal.datasets.importers.table_labels import Classes
from shoal.datasets.importers.table_parts import ENDINGS, find_table, list_files, open_table
from shoal.datasets.importers.tabular import Table
from shoal.edge_weights import MERGES, REFUSE, WeightedChunks
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.survey import share_mirrored
from shoal.labels import TaskChoice
from shoal.settings import AtLeast, Choices, Null
from shoal.store import META, read_meta, stores_targets
from shoal.wording import list_some


def matches(path: Path) -> bool:
    """Whether a path is a table, a folder of tables or a database."""
    if path.is_dir():
        return find_edges(path) is not None
    return path.name.endswith(ENDINGS) or is_database(path)


def find_edges(folder: Path) -> Path | None:
    """The edge table of a folder: edges.*, parts of it, or the folder itself if it holds parts of one table."""
    found = find_table(folder, "edges")
    if found is None and (
        folder.suffix in (".parquet", ".csv")
        or all(file.name.startswith("part-") for file in list_files(folder))
    ):
        return folder if list_files(folder) else None
    return found


def suggest_import(folder: Path) -> str | None:
    """The command that imports a folder whose tables are not called edges and nodes; None if it holds no tables.

    The edges are taken to be in the table whose first columns are called like ends of edges, else in the largest one.
    """
    files = list_files(folder)
    if not files:
        return None
    edges = max(files, key=lambda file: (_names_ends(file), file.stat().st_size))
    others = [str(file) for file in files if file != edges]
    nodes = ["--nodes", others[0] if len(others) == 1 else "FILE"] if others else []
    return f"`{shlex.join(['shoal', 'data', 'import', str(edges), *nodes, '-o', 'GRAPH'])}`"


def _names_ends(file: Path) -> bool:
    try:
        names = [name.lower() for name in open_table(file).names[:2]]
    except ShoalError:
        return False
    return any(len(names) == 2 and all(map(str.startswith, names, pair)) for pair in END_NAMES)


@FORMATS.named("table")
@recognised(matches, priority=50)
def read_table(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    nodes: Annotated[
        str | Path | None,
        Null("nodes.* in the folder, if any"),
        "file or folder of the node table; of a database, its table or a SELECT",
    ] = None,
    edges: Annotated[str | None, Null("edges"), "table of a database with the edges, or a SELECT"] = None,
    source: Annotated[
        str | None, Null("source, src, from or the first"), "column with the source of an edge"
    ] = None,
    target: Annotated[
        str | None, Null("target, dst, to or the second"), "column with the target of an edge"
    ] = None,
    weight: Annotated[
        str | None,
        Null("weight or edge_weight, if any"),
        "column with edge weights; none: unweighted",
    ] = None,
    merge: Annotated[
        str,
        Choices(MERGES),
        "with --undirected, the weight of an edge and its reverse; refuse: the two must weigh the same",
    ] = REFUSE,
    unknown: Annotated[
        str, Choices(("refuse", "drop")), "what to do with edges whose ends the node table lacks"
    ] = "refuse",
    id: Annotated[
        str | None, Null("id, node_id, node or the first"), "column of the node table with its ids"
    ] = None,
    labels: Annotated[
        str | None,
        Null("label, y, class or target, if any"),
        "label column of the node table, or 0/1 columns joined by commas",
    ] = None,
    features: Annotated[
        str | None,
        Null("every other column that can be one"),
        "feature columns of the node table, joined by commas",
    ] = None,
    exclude: Annotated[
        str | None, Null("none"), "columns of the node table to leave out, joined by commas"
    ] = None,
    categories: Annotated[
        str | None, Null("text columns with repeated values"), "columns taken as categories, joined by commas"
    ] = None,
    max_categories: Annotated[int, AtLeast(2), "most values of a text column that is encoded one-hot"] = 32,
    words: Annotated[int, AtLeast(0), "features that the words of a text are hashed into; 0: none"] = 64,
    decimal: Annotated[
        str | None, Choices(("point", "comma")), Null("detected"), "decimal mark of numbers in text"
    ] = None,
    day_first: Annotated[
        bool | None, Null("detected"), "whether 1/2/2024 is in February, not in January"
    ] = None,
    standardize: Annotated[
        bool | None,
        Null("if standard deviations differ a hundredfold, or one exceeds 100"),
        "scale numbers with mean and standard deviation of the training rows",
    ] = None,
    task: TaskChoice = None,
    like: Annotated[
        str | Path | Graph | None,
        Null("none"),
        "stored graph whose encoding of features and classes is reused",
    ] = None,
) -> Graph:
    """CSV or Parquet: an edge table, or a folder with edges.* and nodes.*; SQLite, DuckDB; a row is an arc source → target unless --undirected.

    A row (source, target) is the arc source → target: the target aggregates from the source.

    `path` is an edge table or a folder with edges.csv or edges.parquet and optionally nodes.csv or
    nodes.parquet, each maybe in several files; `nodes` names a node table elsewhere. Edge columns are `source, target`,
    `src, dst` or `from, to`, else the first two; a column `weight` holds weights, which are added up for duplicate edges; an
    edge of weight 0 is left out. With a node table nodes are numbered by its rows; without one, in the
    order of their ids. Batches are turned into int32 numbers as they are read.
    """
    given = dict(locals())
    if is_database(path):
        with export_tables(path, edges, None if nodes is None else str(nodes)) as folder:
            return read_table(
                **{**given, "path": folder, "edges": None, "nodes": None, "name": name or path.stem}
            )
    if edges is not None:
        raise ShoalError(
            f"the option edges names a table of a database, and {path} is not a database: give the edge table as path"
        )
    edge_path = find_edges(path) if path.is_dir() else path
    if edge_path is None:
        command = suggest_import(path)
        fix = "expected one of them" if command is None else f"name the tables, {command}"
        raise ShoalError(f"{path} holds neither edges.csv nor edges.parquet: {fix}")
    node_path = Path(nodes) if nodes is not None else find_table(path, "nodes") if path.is_dir() else None
    links = open_edges(edge_path)
    notices: list[str] = []
    known = None if like is None else read_like(like)
    if known is not None and not known.directed and directed is None:
        directed = False
        notices.append(
            f"made the edges undirected, as those of {known.place} are; --directed keeps them as arcs"
        )
    if not links.header:
        notices.append(f"{edge_path.name} has no header line: read its first line as an edge")
    ends = choose_ends(links, source, target)
    weights = choose_weight(links, ends, weight, decimal)
    if merge != REFUSE and (weights is None or directed is not False):
        lacks = (
            "has none: name their column (--option weight=NAME)"
            if weights is None
            else "is directed: add --undirected"
        )
        raise ShoalError(
            f"the option merge={merge} joins the weights of an edge and its reverse, and the graph of {edge_path} {lacks}"
        )
    _note_extra(links, ends, weights, notices)
    fields: dict[str, Any] = {}
    expected = links.num_rows or 0
    if node_path is not None:
        progress(f"reading {node_path.name}")
        said = ColumnOptions(
            tuple(split_names(categories)), max_categories, words, decimal, day_first, standardize
        )
        options = NodeOptions(id, features, labels, exclude, said, known, task)
        ids, fields = read_nodes(open_table(node_path), options, notices)
    else:
        if any(option is not None for option in (features, labels, id, exclude, categories, like)):
            raise ShoalError(
                f"features, labels and the like name columns of a node table, and {path} has none: name one with --nodes FILE (nodes= in Python)"
            )
        progress(f"reading the node ids of {edge_path.name}")
        ids, expected = collect_edge_ids(links, ends)
    dropped: list[int] = []
    chunks = number_edges(
        links, ends, ids, node_path, progress, dropped if unknown == "drop" else None, weights
    )
    default = path.resolve().name if path.is_dir() else path.name.split(".")[0]
    encoding = fields.pop("encoding", None)
    graph = Graph.from_edge_chunks(
        chunks if weights is None else WeightedChunks(chunks, edge_path.name, merge=merge),
        len(ids),
        directed=directed,
        expected=expected,
        name=name or default,
        node_ids=ids.as_names(),
        notices=notices,
        **fields,
    )
    graph.encoding = encoding
    if weights is not None and weights.mark == COMMA:
        graph.notices += (f"read decimal commas in {weights.name} of {edge_path.name}",)
    if dropped:
        graph.notices += (f"left out {sum(dropped):,} edges with an end that {node_path} lacks",)
    if directed is None and graph.directed:
        graph.notices += (_describe_arcs(graph),)
    return graph


def _note_extra(edges: Table, ends: list[str], weight: WeightColumn | None, notices: list[str]) -> None:
    """The notice on unused columns of an edge table, with the first one that could be weights, if it has none."""
    extra = [name for name in edges.names if name not in (*ends, weight and weight.name)]
    if extra and edges.header:
        said = f"left out {list_some(extra)} of {edges.path.name}: an edge has at most one weight"
        numbers = None if weight else find_number_column(edges, extra)
        notices.append(f"{said}; --option weight={numbers} makes {numbers} the weight" if numbers else said)


def _describe_arcs(graph: Graph) -> str:
    """The notice on how arcs are aggregated, with the share of reciprocal arcs."""
    share = share_mirrored(graph.indptr, graph.indices)
    return (
        "edges are arcs: a node aggregates from the sources of its arcs, with model.directions=both (default of shoal train) from their targets too; "
        f"{share:.0%} of the arcs have their reverse; --undirected adds the others"
    )


def read_like(graph: str | Path | Graph) -> Like:
    """The column encodings and the classes of a graph or a stored graph."""
    if isinstance(graph, Graph):
        place, file = f"graph {graph.name!r}", f"graph {graph.name!r}"
        names = ("encoding", "class_names", "num_classes", "multi_label", "directed")
        meta = {name: getattr(graph, name) for name in names}
        regression = graph.regression
    else:
        place, file, meta = str(graph), str(Path(graph) / META), read_meta(Path(graph))
        regression = stores_targets(meta)
    if not meta.get("encoding"):
        raise ShoalError(
            f"{place} has no record of how columns became features: expected a graph that this version imported from a node table"
        )
    names, several = meta["class_names"], bool(meta.get("multi_label"))
    classes = Classes(place, meta["num_classes"], names and list(names), several, regression)
    encoding = meta["encoding"]
    id_column, labels = encoding.get("id", ""), encoding.get("labels", [])
    columns = load_columns(encoding, file)
    known = classes if meta["num_classes"] else None
    return Like(place, columns, known, id_column, labels, directed=meta["directed"])
