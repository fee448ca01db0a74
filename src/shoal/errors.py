"""ShoalError, and the messages for unknown names, missing extras and full disks."""

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike
from shutil import disk_usage

from shoal.wording import format_bytes

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class ShoalError(Exception):
    """An error that the user can fix: bad input, a missing extra, a full disk.

    Its message is one sentence that says what was found, what is expected and what to do. The command line
    prints it without a traceback and exits with code 2.
    """


class Stopped(KeyboardInterrupt):
    """Training was stopped by a signal, after it finished its step and wrote a checkpoint."""

    def __init__(self, signal: int, sentence: str = "") -> None:
        super().__init__(sentence)
        self.signal = signal


def suggest_name(name: object, known: Iterable[str]) -> str:
    """`did you mean 'X'?` with the name in `known` that is nearest; empty if none is near."""
    near = get_close_matches(str(name)[:100], sorted(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def unknown_name(kind: str, name: object, known: Iterable[str], where: str = "") -> ShoalError:
    """The error for a name that is not in `known`; suggests the nearest one. `where` is the file that has the name."""
    names = sorted(known)
    hint = suggest_name(name, names) or f"known: {', '.join(names)}"
    if not names:
        hint = "none is registered, load a plug-in that has one (--plugin)"
    return ShoalError(f"unknown {kind} {name!r}{f' in {where}' if where else ''}: {hint}")


def missing_extra(package: str, extra: str, purpose: str) -> ShoalError:
    """The error for an optional package that is not installed."""
    return ShoalError(f"{purpose} needs {package}: pip install 'shoal[{extra}]'")


def is_full_disk(error: OSError) -> bool:
    """Whether `error` means that a disk, a quota or a file is full. NumPy reports a short write without errno."""
    return error.errno in NO_ROOM or (error.errno is None and "requested and" in str(error))


@contextmanager
def explain_full_disk(
    path: str | PathLike[str],
    kept: Callable[[], str] = lambda: "nothing was left there",
    *,
    size: int | None = None,
) -> Iterator[None]:
    """Raise ShoalError naming `path` if the disk is full or not writable inside the block; other errors pass.

    `path` is what the user gave, not the hidden file beside it that is being written. `kept` describes what is left there.
    With `size`, the bytes that go to the folder `path`, the message names them and the free space.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FORBIDDEN:
            raise ShoalError(
                f"{path} cannot be written ({(error.strerror or '').lower()}): choose another place, or change its permissions"
            ) from None
        if not is_full_disk(error):
            raise
        needs = ""
        if size is not None:
            needs = f", which takes {format_bytes(size)} where {format_bytes(disk_usage(path).free)} are free"
        raise ShoalError(
            f"no space left while writing {path}{needs}: free some, or choose another disk; {kept()}"
        ) from None
