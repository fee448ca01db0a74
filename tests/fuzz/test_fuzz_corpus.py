"""Files that once crashed a reader, hung it, took its memory or left it with a traceback: none does so again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_worker import GOOD, Worker, make_scratch

CORPUS = Path(__file__).parent / "corpus"
READERS = sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir())


@pytest.fixture(scope="module")
def scratch():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_HOME", "")
        folder = make_scratch()
        yield folder
        shutil.rmtree(folder)


@pytest.mark.parametrize("reader", READERS)
def test_what_once_failed_is_read_or_refused(scratch, reader):
    worker = Worker(reader, scratch)
    folder = CORPUS / reader
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found = worker.replace(str(path.parent.relative_to(folder)), path.read_bytes())
        assert found.kind in GOOD, f"{path}: {found.kind} {found.where}"
    worker.close()
