"""What a command answered, and the check that a refusal is one sentence."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from shoal.cli import main


@dataclass
class Run:
    code: int
    stdout: str
    stderr: str

    def refusal(self) -> str:
        """The last line on stderr, after checking that it is a refusal: exit code 2, no traceback."""
        assert self.code == 2, self.stderr
        assert "Traceback" not in self.stderr
        last = self.stderr.strip().splitlines()[-1]
        assert last.startswith("shoal: ")
        return last


def run_shoal(*args: str) -> str:
    """What `shoal ARGS` printed, run in this process; it must end well."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(args))
    assert not ended.value.code, err.getvalue()
    return out.getvalue()
