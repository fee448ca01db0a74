"""A graph of Python's standard library: names as nodes, as in a text whose words are nodes; classes are what a name does."""

from __future__ import annotations

import ast
import io
import itertools
import keyword
import sysconfig
import tokenize
import zlib
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import shoal

_FEATURES = 128
_TESTS = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.If | ast.While | ast.IfExp
_PLACES = ast.Attribute | ast.BinOp | ast.Subscript | ast.Return | ast.Tuple
Place = tuple[int, int]


def build_code_graph(num_nodes: int = 24_000, seed: int = 0) -> shoal.Graph:
    """The first names of the standard library's files, a split of 50/25/25 drawn by the seed.

    Edges join names that follow each other, and a name with the first one of the expression or statement around it. Features
    are hashed three-letter parts of a name, so that equal names have equal features and only neighbours tell what it does.
    """
    names, roles, edges = [], [], []  # type: list[str], list[str], list[tuple[int, int]]
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        found, owners = read_roles(ast.parse(text))
        ids = {}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and token.start in found and not keyword.iskeyword(token.string):
                ids[token.start] = len(names)
                names.append(token.string)
                roles.append(found[token.start])
        order = list(ids.values())
        edges += itertools.pairwise(order)
        edges += [(ids[place], ids[owners[place]]) for place in ids if owners.get(place) in ids]
        if len(names) >= num_nodes:
            break
    ends = np.array(edges).T
    ends = ends[:, (ends < num_nodes).all(0) & (ends[0] != ends[1])]
    a = sp.coo_array((np.ones(ends.shape[1]), ends), (num_nodes, num_nodes))
    x, y = (
        hash_names(names[:num_nodes]),
        np.unique(roles[:num_nodes], return_inverse=True)[1].astype(np.int64),
    )
    graph = shoal.Graph.from_scipy((a + a.T).tocsr() > 0, x=x, y=y, directed=False)
    return graph.with_split(0.5, 0.25, seed)


def read_roles(tree: ast.AST) -> tuple[dict[Place, str], dict[Place, Place]]:
    """What the name at a line and column does, and the place of the expression or statement around it."""
    roles, owners = {}, {}  # type: dict[Place, str], dict[Place, Place]
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            place, role = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)), ""
            if isinstance(node, ast.Name):
                role = name_role(node, parent)
            elif isinstance(node, ast.Attribute):
                place = (node.end_lineno or 0, (node.end_col_offset or 0) - len(node.attr))
                called = isinstance(parent, ast.Call) and parent.func is node
                role = "method" if called else f"attribute {type(node.ctx).__name__}"
            elif isinstance(node, ast.arg):
                role = "parameter"
            elif isinstance(node, ast.keyword) and node.arg:
                role = "keyword"
            elif isinstance(node, ast.alias):
                role = "import"
            if role:
                roles[place] = role
                owners[place] = (getattr(parent, "lineno", 0), getattr(parent, "col_offset", 0))
    return roles, owners


def name_role(node: ast.Name, parent: ast.AST) -> str:
    """What a variable's name does in the expression or statement around it."""
    if isinstance(node.ctx, ast.Store):
        return "assigned"
    if isinstance(parent, ast.Call):
        return "called" if parent.func is node else "argument"
    if isinstance(parent, _TESTS):
        return "condition"
    return type(parent).__name__ if isinstance(parent, _PLACES) else "other"


def hash_names(names: list[str]) -> np.ndarray:
    """A row for each name: the mean of random vectors of its three-letter parts."""
    vectors = np.random.default_rng(0).standard_normal((1 << 14, _FEATURES)).astype(np.float32)
    rows = {}
    for name in set(names):
        parts = [f"<{name}>"[start : start + 3] for start in range(len(name))]
        rows[name] = vectors[[zlib.crc32(part.encode()) % len(vectors) for part in parts]].mean(0)
    return np.stack([rows[name] for name in names])
