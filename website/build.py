"""python website/build.py: assemble the pages in build/docs and build the site into build/site.

Pages of docs/ are taken as they are. The reference is made from the code, and tutorials are added as notebooks. Nothing is
fetched: fonts are the system's, and all scripts come with Zensical.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from api_pages import build_pages
from command_pages import build_commands, build_settings
from notebooks import build_notebook

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"


def assemble(folder: Path) -> None:
    """Write every page of the site, generated ones included, to `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    shutil.copytree(ROOT / "examples", folder / "examples")
    for page in folder.glob("**/*.md"):
        text = page.read_text()
        page.write_text(
            text.replace("](../examples/", "](examples/").replace("](../../examples/", "](../examples/")
        )
    shutil.copy(ROOT / "website/site.css", folder / "site.css")
    reference = folder / "reference"
    reference.mkdir(exist_ok=True)
    for name, text in {
        "commands.md": build_commands(), "settings.md": build_settings(), **build_pages()
    }.items():  # fmt: skip
        (reference / name).write_text(text)
    for page in (folder / "tutorials").glob("*.md"):
        text = page.read_text()
        page.with_suffix(".ipynb").write_text(build_notebook(text))
        title, rest = text.split("\n", 1)
        page.write_text(f"{title}\n\n[Download this page as a notebook]({page.stem}.ipynb)\n{rest}")


def main() -> None:
    BUILD.mkdir(exist_ok=True)
    assemble(BUILD / "docs")
    shutil.copy(ROOT / "website/zensical.toml", BUILD / "zensical.toml")
    line = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", "zensical.toml"]
    subprocess.run(line, cwd=BUILD, check=True)
    print(f"open {BUILD / 'site/index.html'}")


if __name__ == "__main__":
    main()
