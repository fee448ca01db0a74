"""make screenshots: the screenshots of docs/pictures, by Chromium, of runs on embedded data and of the site.

Runs are trained into build/screenshots and kept there; delete them to train again.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
WORK = ROOT / "build/screenshots"
LARGEST = 300_000  # bytes of a picture
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LAPTOP, PHONE = 1280, 390
SCROLLBAR = 15  # pixels that a frame takes from a page

RUNS = {
    "partitioned": "--workers 2 --epochs 40",
    "full": "--method full --epochs 40 --repeat 3",
    "random-walk": "--method sampled --sampler random-walk --set sampler.roots=300 --epochs 40 --repeat 3",
    "neighbor": "--method sampled --sampler neighbor --epochs 40",
}
COMMON = "--model gcn --set model.hidden=64 --set training.lr=0.01 --no-report"
# Picture: address, width, height, dark.
SHOTS = {
    "report-light": ("screenshots/partitioned.html", LAPTOP, 1500, False),
    "report-dark": ("screenshots/all.html", LAPTOP, 1500, True),
    "report-phone": ("screenshots/partitioned.html", PHONE, 1500, False),
    "site-light": ("site/index.html", LAPTOP, 1000, False),
    "site-dark": ("site/howto/which-method.html", LAPTOP, 1000, True),
    "site-phone": ("site/benchmarks.html", PHONE, 1000, True),
}


class QuietHandler(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address under which the files of a folder are served on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def train_runs() -> None:
    shoal = [sys.executable, "-m", "shoal"]
    for name, settings in RUNS.items():
        if not (WORK / name).exists():
            line = [*shoal, "train", "digits", *settings.split(), *COMMON.split(), "--out", name]
            subprocess.run(line, cwd=WORK, check=True)
    subprocess.run([*shoal, "report", "partitioned", "-o", "partitioned.html"], cwd=WORK, check=True)
    subprocess.run([*shoal, "report", *RUNS, "-o", "all.html"], cwd=WORK, check=True)


def shoot(browser: str, address: str, width: int, height: int, dark: bool) -> Image.Image:
    """A page in a frame of its own width: a window is never narrower than 500 pixels."""
    frame = WORK / "frame.html"
    style = f"width:{width + SCROLLBAR}px;height:{height}px;border:0;display:block"
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe src="{address}" style="{style}"></iframe>'
    )
    base = "/".join(address.split("/")[:3])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        picture = Path(profile, "shot.png")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += [
            f"--user-data-dir={profile}",
            f"--window-size={max(width + SCROLLBAR, 500)},{height + 200}",
        ]
        options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=5000"]
        line = [browser, *options, f"--screenshot={picture}", f"{base}/screenshots/frame.html"]
        subprocess.run(line, check=True, capture_output=True, timeout=180)
        return Image.open(io.BytesIO(picture.read_bytes())).convert("RGB").crop((0, 0, width, height))


def main() -> None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium is installed")
    if not (ROOT / "build/site/index.html").exists():
        sys.exit("there is no site: run `make docs` first")
    WORK.mkdir(parents=True, exist_ok=True)
    train_runs()
    with serve(ROOT / "build") as address:
        for name, (page, width, height, dark) in SHOTS.items():
            picture = PICTURES / f"{name}.png"
            image = shoot(browser, f"{address}/{page}", width, height, dark)
            image.save(picture, optimize=True)
            size = picture.stat().st_size
            print(f"{picture.relative_to(ROOT)}: {width} × {height}, {size:,} bytes")
            assert size < LARGEST, f"{picture} is larger than {LARGEST:,} bytes"


if __name__ == "__main__":
    main()
