"""Tutorials as notebooks: Markdown between code cells, commands as `!` lines. There is no copy to keep."""

from __future__ import annotations

import json
import re

_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def list_cells(page: str) -> list[tuple[str, str]]:
    """(markdown or code, source): Python blocks as they are, `sh` blocks as lines for the shell."""
    cells: list[tuple[str, str]] = []
    text, at = "", 0
    for found in _BLOCK.finditer(page):
        text += page[at : found.start()]
        at = found.end()
        if found[1] not in ("python", "sh"):
            text += found[0]
            continue
        cells += [("markdown", text), ("code", found[2] if found[1] == "python" else to_shell(found[2]))]
        text = ""
    cells.append(("markdown", text + page[at:]))
    return [(kind, source.strip("\n")) for kind, source in cells if source.strip()]


def to_shell(commands: str) -> str:
    """One `!` line a command; comments stay."""
    joined = commands.replace("\\\n", "")
    return "\n".join(line if line.startswith("#") else f"!{line}" for line in joined.splitlines() if line)


def build_notebook(page: str) -> str:
    cells = []
    for number, (kind, source) in enumerate(list_cells(page)):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.splitlines(True)}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
