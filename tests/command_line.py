"""What a command answered, and the check that a refusal is one sentence."""

from __future__ import annotations

from dataclasses import dataclass


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
