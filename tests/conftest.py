"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real graphs: $SHOAL_DATA, else ../shared/data beside the repository; skips without it."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("SHOAL_DATA", root / "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no real graphs in {folder}")
    return folder
