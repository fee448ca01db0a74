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
    for page in (ROOT / "docs/tutorials").glob("*.md"):
        (folder / "tutorials" / f"{page.stem}.ipynb").write_text(build_notebook(page.read_text()))


def main() -> None:
    build = ROOT / "build"
    assemble(build / "docs")
    shutil.copy(ROOT / "website/zensical.toml", build / "zensical.toml")
    line = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", "zensical.toml"]
    subprocess.run(line, cwd=build, check=True)
    print(f"open {build / 'site/index.html'}")


if __name__ == "__main__":
    main()
