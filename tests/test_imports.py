"""Who imports whom in the package: no cycle, no room that knows one above it, nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import shoal

ROOT = Path(shoal.__file__).parent
LONGEST = 350  # lines of a file

# A room (a module or package with all below it), and what nothing in it imports.
FORBIDDEN = {
    "shoal.kernels": ["shoal.*"],
    "shoal.sampling": ["shoal.partitioning", "shoal.distributed", "shoal.training", "shoal.runs"],
    "shoal.distributed": ["shoal.models", "shoal.training", "shoal.runs", "shoal.commands"],
    "shoal.training": ["shoal.runs", "shoal.report", "shoal.commands", "shoal.cli"],
    "shoal.runs": ["shoal.report", "shoal.commands", "shoal.cli"],
    "shoal.report": ["shoal.commands", "shoal.cli"],
}
# What a room may import all the same.
ALLOWED = {
    "shoal.kernels": ["shoal.kernels", "shoal.errors", "shoal.threads"],
    "shoal.sampling": [
        "shoal.partitioning.partition"
    ],  # the cluster sampler makes one; nothing there imports it
}
HEAVY = ("torch", "numpy", "numba", "scipy", "pyarrow", "rich")
COMMAND_LINE = ("shoal.commands", "shoal.cli", "shoal.__main__")


@cache
def find_modules() -> dict[str, Path]:
    """Every module of the package by its name; a package is its `__init__`."""
    modules = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def walk(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements below a node, those in functions too, those for type checkers not."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = list(node.orelse)
    for child in children:
        yield from walk(child)


def read_imports(name: str, path: Path) -> set[str]:
    """What a module imports: modules of the package by their name, those of others as they are written."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for statement in walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
            continue
        source = statement.module or ""
        if statement.level:
            up = package.split(".")[: len(package.split(".")) - statement.level + 1]
            source = ".".join([*up, *source.split(".")] if source else up)
        below = {f"{source}.{alias.name}" for alias in statement.names} & find_modules().keys()
        found |= below
        if len(below) < len(statement.names):  # a name that the module itself has
            found.add(source)
    return found - {name}


@cache
def import_graph() -> dict[str, set[str]]:
    return {name: read_imports(name, path) for name, path in find_modules().items()}


def is_in(module: str, rooms: list[str] | tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room.removesuffix('.*')}.") for room in rooms)


def find_cycles(imports: dict[str, set[str]]) -> list[str]:
    """One line for every set of modules that import each other: a way round."""
    graph = nx.DiGraph((name, target) for name, targets in imports.items() for target in targets)
    sets = [component for component in nx.strongly_connected_components(graph) if len(component) > 1]
    rounds = [[source for source, _ in nx.find_cycle(graph.subgraph(component))] for component in sets]
    return sorted(" → ".join([*names, names[0]]) for names in rounds)


def test_no_module_imports_itself_through_others():
    cycles = find_cycles(import_graph())
    assert not cycles, "\n".join(cycles)


def test_a_cycle_would_be_found():
    assert find_cycles({"a": {"b", "numpy"}, "b": {"c"}, "c": {"b"}})[0] in ("b → c → b", "c → b → c")
    assert find_cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_knows_nothing_above_it(room):
    wrong = [
        f"{name} imports {target}"
        for name, targets in import_graph().items()
        if is_in(name, [room])
        for target in sorted(targets)
        if is_in(target, FORBIDDEN[room]) and not is_in(target, ALLOWED.get(room, []))
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_imports_what_draws_and_parses_it():
    wrong = [
        f"{name} imports {target}"
        for name, targets in import_graph().items()
        if not is_in(name, COMMAND_LINE)
        for target in sorted(targets)
        if is_in(target, ["rich", "click"])
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_is_longer_than_a_reader_keeps_in_mind():
    lengths = {name: len(path.read_text().splitlines()) for name, path in find_modules().items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def run_alone(code: str) -> float:
    """Run code in a process of its own that must import nothing heavy; returns its seconds of CPU."""
    end = f"print([name for name in {HEAVY} if name in sys.modules])\nprint(time.process_time())"
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys, time\n{code}\n{end}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    *_, heavy, seconds = ended.stdout.splitlines()
    assert heavy == "[]"
    return float(seconds)


def test_the_package_and_its_help_import_nothing_heavy_and_are_fast():
    run_alone("import shoal")
    helps = (
        "for words in ([], ['data'], ['data', 'list']): shoal.main([*words, '--help'], standalone_mode=False)"
    )
    spent = [run_alone(f"from shoal.cli import shoal\n{helps}") for _ in range(3)]
    assert min(spent) < 0.5  # of CPU, which a busy machine does not lengthen much
