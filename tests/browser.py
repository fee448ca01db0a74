"""A headless Chromium without a driver: what a page becomes in it, and what its console says."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Laid out in a frame of its own width (a window is never narrower than 500 pixels), and measured there.
FRAME = """<!doctype html><meta charset="utf-8"><body style="margin:0"><iframe srcdoc="{page}" style="width:{width}px;height:900px;border:0"></iframe>
<pre id="found"></pre><script>
document.querySelector("iframe").onload = (event) => {{
  const inside = event.target.contentDocument, all = [...inside.querySelectorAll("main *")];
  const limit = inside.documentElement.clientWidth;
  const wide = all.filter((one) => one.getBoundingClientRect().right > limit + 1 && !one.closest(".scroll, pre, svg"));
  document.querySelector("#found").textContent = JSON.stringify({{
    width: limit, scroll: inside.documentElement.scrollWidth, wide: wide.map((one) => one.tagName + "." + one.className),
  }});
}};
</script>"""


@dataclass
class Seen:
    """A page after its scripts have run."""

    dom: str
    console: list[str]

    def count(self, element: str) -> int:
        return len(re.findall(rf"<{element}[\s>]", self.dom))


def find_browser() -> str:
    """The command of a Chromium; skips without one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


def look(url: str, *, milliseconds: int = 2000) -> Seen:
    """Open a page and give its scripts so much virtual time."""
    browser = find_browser()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0")
        line = [browser, *options, f"--user-data-dir={profile}", f"--virtual-time-budget={milliseconds}"]
        done = subprocess.run(
            [*line, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True
        )
    return Seen(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])


def lay_out(page: Path, width: int) -> str:
    """What a page of a width measures, as JSON: its width, how wide it scrolls, and elements that stick out."""
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(page=html.escape(page.read_text()), width=width))
    found = re.search(r'<pre id="found">(.*?)</pre>', look(frame.as_uri()).dom, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])
