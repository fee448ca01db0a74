"""Every command and every code block of the documentation works.

Pages that teach are run from top to bottom on small data, tutorials as the notebooks that are made of them. Commands of all pages go through the
real option parser, and those of `shoal train` through the checks of a configuration. docs/extending.md and docs/interop.md have tests
of their own.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import click
import pytest

from command_line import run_shoal
from doc_pages import PAGES, ROOT, find_shoal, list_blocks, list_commands, name_page
from shoal.cli import shoal as group
from shoal.commands.train import configure

from notebooks import build_notebook  # isort: skip

# What stands before the arguments of `shoal`, or has none.
LAUNCHERS = {
    "shoal",
    "torchrun",
    "srun",
    "mpiexec",
    "sbatch",
    "salloc",
    "kubectl",
    "pip",
    "make",
    "python",
    "printf",
}
TAUGHT = [
    "docs/index.md",
    "docs/quickstart.md",
    *(name_page(page) for page in sorted((ROOT / "docs/howto").glob("*.md"))),
]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
# What the Python blocks of reference pages take as given.
GIVEN = {
    "README.md": "",
    "docs/samplers.md": """
import shoal
from torch_geometric.nn import GCN
graph = shoal.load("blocks", num_nodes=9000, degree=4)
data = graph.to_pyg()
model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes, num_layers=1)
pyg_model = GCN(graph.num_features, 8, 1, graph.num_classes)
""",
    "docs/partitioning.md": """
import shoal
graph = shoal.load("blocks", num_nodes=400, degree=4)
""",
    "docs/data.md": """
import shoal
import networkx
import scipy.sparse
import pandas as pd
edges, nodes = new_edges, new_nodes = pd.read_csv("my-tables/edges.csv"), pd.read_csv("my-tables/nodes.csv")
graph = shoal.load("blocks", num_nodes=300)
data = graph.to_pyg()
g = networkx.path_graph(5)
matrix = scipy.sparse.identity(300, format="csr")
edge_index, x, y = data.edge_index, graph.x, graph.y
""",
    "docs/training.md": """
import numpy as np
import shoal
graph = shoal.load("digits")
edge_index, x, y = graph.to_pyg().edge_index, graph.x, graph.y
weights = np.ones(edge_index.shape[1], np.float32)
prices = np.linspace(0.1, 9.7, graph.num_nodes)
""",
    "docs/runs.md": """
import shoal
graph = shoal.load("digits")
""",
    "docs/inference.md": """
import shoal
graph = new_graph = shoal.load("digits")
from command_line import run_shoal
run_shoal("train", "digits", "--epochs", "1", "--out", "runs/mine")
""",
}


def write_tables(folder: Path) -> None:
    """Two groups of people, one rare, who mostly know their like."""
    numbers = random.Random(0)
    folder.mkdir()
    groups = ["blue" if k % 6 == 0 else "red" for k in range(150)]
    rows = [
        f"p{k},{group},{numbers.gauss(40, 9):.0f},{numbers.gauss(group == 'blue', 0.5):.3f}"
        for k, group in enumerate(groups)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,age,score", *rows]) + "\n")
    pairs = [(k, numbers.randrange(150)) for k in range(150) for _ in range(4)]
    ends = [f"p{a},p{b}" for a, b in pairs if a != b and (groups[a] == groups[b] or numbers.random() < 0.2)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Path:
    """A folder with tables, and a home of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("SHOAL_DATA", "SHOAL_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    write_tables(tmp_path / "my-tables")
    return tmp_path


def run_command(command: str) -> None:
    """Run what needs no launcher; whatever else a page shows was parsed."""
    if not command.startswith("shoal "):
        return
    words = find_shoal(command)
    if words[0] == "train" and "--epochs" not in words:
        words += ["--epochs", "2"]
    if words[0] == "plan":
        return  # it starts a process for each method: tests/runs/test_method_plan.py runs it
    if words[:2] == ["data", "import"] and Path(words[words.index("-o") + 1]).exists():
        return  # the page that teaches it was prepared with it
    run_shoal(*words)


def run_python(code: str, names: dict, where: str) -> None:
    exec(compile(code, where, "exec"), names)


@pytest.mark.parametrize("name", TAUGHT)
def test_a_page_runs_from_top_to_bottom(name, desk):
    pytest.importorskip("torch_geometric")
    page = ROOT / name
    if "my-graph" in page.read_text():
        run_shoal("data", "import", "my-tables/", "-o", "my-graph", "--undirected")
    names: dict = {}
    for block in list_blocks(page):
        if block.language == "python":
            run_python(block.text, names, f"{name}:{block.line}")
        elif block.language == "sh":
            for command in list_commands(block.text):
                run_command(command)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_notebook_runs(page, desk):
    pytest.importorskip("torch_geometric")
    notebook = json.loads(build_notebook(page.read_text()))
    names: dict = {}
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if source.startswith("!"):
            for line in source.splitlines():
                run_command(line.removeprefix("!"))
        else:
            run_python(source, names, f"cell {number} of {page.name}")
    for name in ("by_trainer", "by_loop", "by_shoal"):
        assert names.get(name, 1) > 0.8, name


@pytest.mark.parametrize("name", GIVEN)
def test_python_of_reference_pages_runs(name, desk):
    pytest.importorskip("torch_geometric")
    names: dict = {}
    exec(GIVEN[name], names)
    for block in list_blocks(ROOT / name):
        if block.language == "python" and not block.text.startswith("# file"):
            run_python(block.text, names, f"{name}:{block.line}")


def parse(words: list[str]) -> None:
    """Hold arguments to the option parser of their command, and a training's settings to its checks."""
    command: click.Command = group
    context = group.make_context("shoal", list(words))
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, list(words))
        context = command.make_context(name, list(words), parent=context) if words or name else context
    given = context.params
    if command.name == "train" and given["resume"] is None and not str(given["recipe"]).endswith(".yaml"):
        config = configure(
            given["data"] or given["parts"], given["method"] or ("partitioned" if given["parts"] else None), given["sampler"],
            given["model"], given["epochs"], given["seed"], given["recipe"], given["settings"],
        )  # fmt: skip
        config.validate()


@pytest.mark.parametrize("page", [page for page in PAGES if "lab" not in page.parts], ids=name_page)
def test_commands_are_those_of_the_parser(page, desk):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in list_blocks(page):
        for command in list_commands(block.text) if block.language == "sh" else []:
            first = command.split()[0]
            assert first in LAUNCHERS, command
            if first == "make":
                assert command.split()[1] in targets, command
            for path in re.findall(r"(?:examples|benchmarks|tests)/[\w./]+", command):
                assert (ROOT / path).exists(), command
            words = find_shoal(command)
            if words is not None and "--plugin" not in words:
                parse(words)
