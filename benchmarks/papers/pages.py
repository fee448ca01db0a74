"""python benchmarks/papers/pages.py: write docs/papers from what the experiments saved; `--no-plots` leaves their pictures as they are, `--profile regular`
shows results of that profile where there are some.

Every figure on a page is computed from benchmarks/results or stands in an experiment as what its paper published, with its
place. `tests/test_papers_pages.py` holds the pages in step.
"""

from __future__ import annotations

import argparse
import importlib
import re
from typing import Any

import harness
import items
from harness import ROOT, Experiment, Row, read_record

from page import _wrap as wrap

FOLDER = ROOT / "docs/papers"
PAGES = {
    "items": (
        "Figures and tables of the papers",
        "What IPDPS'19, JPDC'21, VLDB'22 and BNS-GCN show, the experiment that makes it here, and what is not made and why. The list is `benchmarks/papers/items.py`.",
        ("graphs",),
    ),
    "subgraphs": (
        "Experiments of IPDPS'19 and JPDC'21",
        "Training on sampled subgraphs. IPDPS'19 is *Accurate, Efficient and Scalable Graph Embedding*, JPDC'21 *Accurate, Efficient and Scalable Training of Graph Neural Networks*.",
        (
            "theorem1",
            "theorem2",
            "scheduler",
            "scaling",
            "vector_instructions",
            "breakdown",
            "kronecker_sweep",
            "depth",
            "score_against_time",
        ),
    ),
    "partitions": (
        "Experiments of VLDB'22",
        "Full-graph training across processors. VLDB'22 is *Scalable Graph Convolutional Network Training on Distributed-Memory Systems*. HP is hypergraph, GP graph, RP random partitioning. With effort fast our [HP](../partitioning.md#hypergraph) is METIS's cut and a local search that lowers the volume; only higher efforts run a hypergraph partitioner, Mt-KaHyPar. Where effort fast is named, HP starts at GP and stays near it.",
        (
            *("volumes", "minibatches", "partition_overhead", "strong_scaling", "deeper_networks", "parity"),
            *("broadcast", "billion_edges", "other_systems"),
        ),
    ),
    "boundary": (
        "Experiments of BNS-GCN",
        "Boundary node sampling. BNS-GCN is *Efficient Full-Graph Training of Graph Convolutional Networks with Partition-Parallelism and Random Boundary Node Sampling*. p is the share of boundary nodes kept.",
        (
            *("throughput", "variance", "boundary_memory", "rates", "choice_of_p", "convergence"),
            *("random_parts", "edge_sampling", "sampling_overhead", "sampling_methods", "parts192"),
        ),
    ),
}
HEAD = """# {title}

{about} Ideas and where they are in the code: [papers](../papers.md).

This page is generated from `benchmarks/results/papers` by `make papers`, which runs every experiment at the `small` profile; the last line of a section says when and where, and which larger profiles were never run. `python benchmarks/papers/run.py --profile regular` runs and shows larger ones, and each file of `benchmarks/papers` runs alone. The originals' graphs and machines are not at hand: graphs that stand in are named and [listed](../papers.md#graphs-of-the-experiments), and times of a busy machine of two cores are for ratios side by side. `kronecker:16:64` is a Kronecker graph of 2¹⁶ nodes and degree 64 as JPDC'21 draws them, `even:16:15` one with random edges. What is beside ours was read from the paper at the place named.
"""


def list_names() -> list[str]:
    return [
        name for _, _, names in PAGES.values() for name in names if (harness.HERE / f"{name}.py").exists()
    ]


def load_experiment(name: str) -> Experiment:
    experiment: Experiment = importlib.import_module(name).EXPERIMENT
    assert experiment.name == name, f"{name}.py names its experiment {experiment.name}"
    return experiment


def render(table: list[list[str]]) -> str:
    lines = [table[0], ["---"] * len(table[0]), *table[1:]]
    assert len({len(line) for line in lines}) == 1, "rows of one length"
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def describe_run(experiment: Experiment, record: dict[str, Any]) -> str:
    """Where the figures of a section come from."""
    files = ", ".join(f"`{name}`" for name in experiment.reads)
    made = record["environment"]
    spent = f"{record['seconds']:.0f} s ({record['cpu_seconds']:.0f} s of the processor)"
    where = f"{made['cores']} cores of an {made['cpu']}, load {made['load']}"
    beside = f"; also {files}, measured before" if files else ""
    return f"`{experiment.name}.py`, profile {record['profile']}: {record['date']}, {spent} on {where}{beside}.{describe_profiles(experiment, record['profile'])}"


def describe_profiles(experiment: Experiment, shown: str) -> str:
    """The other profiles: when they were run, or that they never were."""
    records = {profile: read_record(experiment, profile) for profile in harness.PROFILES if profile != shown}
    done = [
        f" Profile {profile}: {record['date']}, {record['seconds']:.0f} s, not shown."
        for profile, record in records.items()
        if record is not None
    ]
    never = [profile for profile, record in records.items() if record is None]
    return "".join(done) + (f" Profiles never run: {', '.join(never)}." if never else "")


def build_section(experiment: Experiment, record: dict[str, Any]) -> str:
    rows = record["rows"]
    lines = [
        f"\n## {experiment.title}\n",
        f"{experiment.published.place}.\n",
        f"- Ours: {experiment.ours}",
        f"- Theirs: {experiment.theirs}\n",
        render(experiment.tabulate(rows)),
        f"![{experiment.title}]({experiment.name}.svg)\n",
        f"{experiment.explain(rows)}\n",
        describe_run(experiment, record),
    ]
    return "\n".join(lines) + "\n"


def build_items() -> str:
    """The tables of `items`: a paper's figures and tables, and the experiments that make them."""
    text = ""
    for paper in items.PAPERS:
        listed = [item for item in items.ITEMS if item.paper == paper]
        made = sum(bool(item.made) for item in listed)
        text += f"\n## {paper}\n\n{made} of {len(listed)} are made.\n\n"
        text += render(items.tabulate(paper, link_section))
    return text


def link_section(name: str) -> str:
    experiment = load_experiment(name)
    anchor = re.sub(r"[^\w -]", "", experiment.title.lower()).replace(" ", "-")
    return f"[{name}.py]({'' if experiment.paper == 'items' else experiment.paper + '.md'}#{anchor})"


def build_page(page: str, profile: str = "small") -> str:
    """A page; sections without results of the profile show those of the small one."""
    title, about, names = PAGES[page]
    text = HEAD.format(title=title, about=about)
    if page == "items":
        text += build_items()
    for name in names:
        if name in list_names():
            experiment = load_experiment(name)
            assert experiment.paper == page
            record = read_record(experiment, profile) or read_record(experiment)
            if record is not None:
                text += build_section(experiment, record)
    return "\n".join(wrap(line) for line in text.split("\n"))


def draw_plot(experiment: Experiment, rows: list[Row]) -> None:
    """docs/papers/NAME.svg, the same bytes for the same rows."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": experiment.name, "svg.fonttype": "none", "font.size": 8}
    style |= {"legend.fontsize": 7, "legend.loc": "upper left", "legend.framealpha": 0.6}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(5.5, 3.2), layout="constrained")
        experiment.draw(axes, rows)
        if axes.get_legend() is None and any(axes.get_legend_handles_labels()[1]):
            axes.legend()
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(
            FOLDER / f"{experiment.name}.svg", metadata={"Date": None, "Creator": None}, facecolor="white"
        )
        pyplot.close(figure)


def write_pages(*, plots: bool = True, profile: str = "small") -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in list_names() if plots else ():
        experiment = load_experiment(name)
        record = read_record(experiment, profile) or read_record(experiment)
        if record is not None:
            draw_plot(experiment, record["rows"])
    for page in PAGES:
        (FOLDER / f"{page}.md").write_text(build_page(page, profile))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", choices=harness.PROFILES, default="small")
    parser.add_argument("--no-plots", action="store_true")
    options = parser.parse_args()
    write_pages(plots=not options.no_plots, profile=options.profile)
