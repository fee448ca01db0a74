"""The tables of `shoal data list` and `shoal data info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.commands.screen import fact_table, format_bytes, plain_table
from shoal.commands.tables import PlainTable
from shoal.datasets.dataset import Dataset
from shoal.datasets.generators import GENERATORS
from shoal.datasets.places import find_graph, local_names
from shoal.datasets.registry import registered
from shoal.errors import ShoalError
from shoal.labels import describe_outputs
from shoal.registry import summarize
from shoal.wording import count, list_some

if TYPE_CHECKING:
    from shoal.datasets.describe import Description, FeatureFigures, LabelFigures, WeightFigures

NUMBERS = ("nodes", "edges", "features", "classes")


def list_known() -> list[dict[str, Any]]:
    """Every known graph: name, sizes (of the stored graph, or as published; None if unknown), where it is, licence and title."""
    here, empty = set(local_names()), dict.fromkeys(NUMBERS)
    known: dict[str, dict[str, Any]] = {}
    for name, generator in GENERATORS.items():
        known[name] = empty | {"where": "embedded", "licence": None, "what": summarize(generator)}
    for name, dataset in registered().items():
        published = {number: getattr(dataset, f"num_{number}") or None for number in NUMBERS}
        known[name] = published | {"where": where_is(name), "licence": dataset.licence, "what": dataset.title}
    for name in sorted(here - set(GENERATORS)):
        path = find_graph(name)
        assert path is not None
        known[name] = {"licence": None, "what": str(path)} | known.get(name, empty) | _read_sizes(path)
    return [{"name": name} | one for name, one in known.items()]


def list_table() -> PlainTable:
    """The table of `list_known`; licence and title are left out of narrow ones."""
    rest = ("licence", "what")
    table = plain_table("name", *NUMBERS, "where", *rest, right=NUMBERS, wide=rest)
    for one in list_known():
        sizes = [f"{one[number]:,}" if one[number] else "" for number in NUMBERS]
        table.add_row(one["name"], *sizes, one["where"], one["licence"] or "", one["what"])
    return table


def where_is(data: str) -> str:
    """Where a graph is: embedded, here, fetchable (`shoal data get`), by hand, or unknown."""
    if data in GENERATORS:
        return "embedded"
    if Path(data).exists() or find_graph(data) is not None:
        return "here"
    known = registered().get(data)
    if known is None:
        return "unknown"
    return "by hand" if known.by_hand else "fetchable"


def dataset_table(dataset: Dataset) -> PlainTable:
    """The published figures of a registered graph that is not on this machine."""
    score = dataset.score
    how = (
        f"by hand from {dataset.page}, then: {dataset.import_line}"
        if dataset.by_hand
        else f"shoal data get {dataset.name}"
    )
    return fact_table(
        {
            "name": dataset.name,
            "what": dataset.title,
            "where": f"not here yet; {how}",
            "nodes": f"{dataset.num_nodes:,}",
            "edges": f"{dataset.num_edges:,} {'arcs, directed' if dataset.directed else 'undirected'}",
            "features": _count(dataset.num_features) or "none",
            "classes": f"{_count(dataset.num_classes) or 'none'}{' (multi-label)' if dataset.multi_label else ''}",
            "split": dataset.split,
            "task": dataset.task,
            "published": f"{score.metric} {score.value} by {score.model} ({score.source})" if score else None,
            "licence": dataset.licence,
            "page": dataset.page,
            "reference": dataset.reference,
        }
    )


def graph_table(seen: Description) -> PlainTable:
    """The measured figures of a graph on this machine."""
    edges = "arcs, directed" if seen.directed else "undirected"
    total = sum(seen.bytes.values())
    return fact_table(
        {
            "name": seen.name,
            "nodes": f"{seen.num_nodes:,}",
            "edges": f"{seen.num_edges:,} {edges}{_say(seen.mirrored, '; {:.0%} have their reverse')}",
            "edge weights": _show_weights(seen.weights),
            "degree": ", ".join(f"{name} {value:,.4g}" if name == "mean" else f"{name} {value:,.0f}" for name, value in seen.degrees.items()),
            "degree tail": f"1 % of the nodes have {seen.top_share:.0%} of the {'arcs' if seen.directed else 'edges'}",
            "isolated nodes": f"{seen.num_isolated:,}",
            "self loops": f"{seen.num_self_loops:,}",
            "components": _show_components(seen),
            "features": _show_features(seen.features),
            **(_show_columns(seen.features) if seen.features is not None else {}),
            "labels": _show_labels(seen),
            "classes": _show_classes(seen.labels),
            "homophily": _show_homophily(seen),
            "split": _show_split(seen),
            "memory": f"{format_bytes(total)} ({', '.join(f'{part} {format_bytes(size)}' for part, size in seen.bytes.items() if size)})",
        }
    )  # fmt: skip


def _say(value: float | None, text: str) -> str:
    return "" if value is None else text.format(value)


def _show_weights(found: WeightFigures | None) -> str:
    if found is None:
        return "none: every edge counts the same"
    return f"{found.least:,.4g} to {found.most:,.4g}, mean {found.mean:,.4g}"


def _show_components(seen: Description) -> str:
    if seen.components is None:
        return "not counted in a graph of this size"
    number, largest = seen.components["count"], seen.components["largest"]
    return f"{number:,}, the largest has {largest / seen.num_nodes:.1%} of the nodes"


def _show_features(found: FeatureFigures | None) -> str:
    if found is None:
        return "none"
    digits = 2 if found.kind.startswith("sparse") else 1
    return f"{found.count:,} {found.kind}, {found.nonzero:.{digits}%} nonzero"


def _show_columns(found: FeatureFigures) -> dict[str, str | None]:
    """Constant features, missing values, rows of zeros, and the range of standard deviations."""
    low, high = found.deviations
    return {
        "constant": f"{len(found.constant):,} of them: {list_some(found.constant)}"
        if found.constant
        else None,
        "missing": list_some([f"{name} {share:.1%}" for name, share in found.missing.items()]) or None,
        "zero rows": f"{found.zero_rows:.1%} of the nodes" if found.zero_rows else None,
        "deviations": f"{low:,.3g} to {high:,.3g}" if high > 0 else None,
    }


def _show_labels(seen: Description) -> str:
    if (targets := seen.targets) is not None:
        outputs = describe_outputs(targets.count, regression=True)
        spread = f"{targets.least:,.4g} to {targets.most:,.4g}, mean {targets.mean:,.4g}"
        text = f"numbers (regression), {outputs} a node, {spread}"
        return f"{text}; {targets.unlabelled:,} nodes unlabelled" if targets.unlabelled else text
    found = seen.labels
    if found is None:
        return "none"
    total = sum(found.sizes.values())
    if found.several:
        return f"multi-label, {count(len(found.sizes), 'class')}, {total / seen.num_nodes:.1f} labels a node"
    if total == 0:
        return "single-label, but no node is labelled"
    text = f"single-label, {count(len(found.sizes), 'class')}, the largest holds {max(found.sizes.values()) / total:.0%}"
    return f"{text}; {found.unlabelled:,} nodes unlabelled" if found.unlabelled else text


def _show_classes(found: LabelFigures | None) -> str | None:
    if found is None or not found.sizes:
        return None
    ordered = sorted(found.sizes.items(), key=lambda item: -item[1])
    text = list_some([f"{name}: {size:,}" for name, size in ordered])
    if len(ordered) > 8:
        text += f", the smallest {ordered[-1][0]}: {ordered[-1][1]:,}"
    if found.untrained:
        text += f"; no training node has {list_some(found.untrained)}"
    return text


def _show_homophily(seen: Description) -> str | None:
    found = seen.homophily
    if found is None:
        return None
    text = f"{found.edges:.1%} of the edges join equal labels"
    if found.adjusted is not None:
        text += f"; adjusted for class sizes {round(found.adjusted, 2) + 0.0:.2f} (0: chance, 1: all)"
    return f"{text}, in a sample of {found.sampled:,}" if found.sampled else text


def _show_split(seen: Description) -> str:
    text = " / ".join(f"{name} {size:,}" for name, size in seen.split.items()) or "none"
    if seen.split and not seen.split.get("val"):
        text += "; no validation nodes: training keeps the last weights and never stops early"
    return text


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _read_sizes(path: Path) -> dict[str, Any]:
    """State of a graph on disk, and its sizes from meta.json; no sizes for a single file, which would have to be read."""
    from shoal.store import read_meta

    meta: dict[str, Any] = {}
    state = "here"
    if path.is_dir():
        try:
            meta = read_meta(path)
        except ShoalError:
            state = "damaged"
    sizes = {number: meta[f"num_{number}"] for number in NUMBERS if meta.get(f"num_{number}")}
    return sizes | {"where": state}
