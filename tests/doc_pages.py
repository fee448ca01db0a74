"""The pages of the documentation: their blocks, links, headings and commands."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEBSITE = ROOT / "website"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")

sys.path.append(str(WEBSITE))


@dataclass
class Block:
    """A fenced block: its language and its lines."""

    language: str
    text: str
    page: str
    line: int


def name_page(path: Path) -> str:
    return str(path.relative_to(ROOT))


def list_blocks(path: Path) -> list[Block]:
    text = path.read_text()
    return [
        Block(found[1], found[2], name_page(path), text[: found.start()].count("\n") + 1)
        for found in FENCE.finditer(text)
    ]


def list_commands(text: str) -> list[str]:
    """The lines of a shell block without prompts, comments and backslashes at their ends."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [re.sub(r"\s+#\s.*|^#.*", "", line.removeprefix("$ ")).strip() for line in joined.splitlines()]
    return [line for line in lines if line]


def find_shoal(command: str) -> list[str] | None:
    """The arguments of `shoal` or `python -m shoal` in a command, also behind a launcher; None where it has none."""
    words = shlex.split(command)
    for at, word in enumerate(words):
        if Path(word).name == "shoal" and (at == 0 or words[at - 1] == "-m"):
            return words[at + 1 :]
    return None


def strip_code(text: str) -> str:
    """The page without fenced blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "`code`", FENCE.sub("", text))


def list_links(path: Path) -> list[str]:
    return LINK.findall(re.sub(r"`[^`\n]*`(?!\])", "", FENCE.sub("", path.read_text())))


def slugify(heading: str) -> str:
    """The anchor of a heading, as GitHub and Python-Markdown both make it for the headings that are linked to."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def list_anchors(text: str) -> set[str]:
    """Anchors of a page; those of repeated headings end in a number."""
    anchors: set[str] = set()
    for found in re.finditer(r"^#{1,6} (.+)$", FENCE.sub("", text), re.MULTILINE):
        slug, number = slugify(found[1]), 0
        while (one := f"{slug}-{number}" if number else slug) in anchors:
            number += 1
        anchors.add(one)
    return anchors
