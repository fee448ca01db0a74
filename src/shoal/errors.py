"""The one error users see, and the "did you mean" that goes with an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches


class ShoalError(Exception):
    """Something the user can mend: bad input, a missing extra, a full disk.

    Its message is one sentence that says what was found, what is expected and what to do. The command line
    prints it without a traceback and exits with code 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ShoalError:
    """The error for a name that is not among `known`, with the nearest one suggested."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return ShoalError(f"unknown {kind} {name!r}: {hint}")


def missing_extra(package: str, extra: str, purpose: str) -> ShoalError:
    """The error for an optional package that is not installed."""
    return ShoalError(f"{purpose} needs {package}: pip install 'shoal[{extra}]'")
