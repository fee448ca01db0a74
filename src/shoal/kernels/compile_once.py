"""Compiling a kernel once for all processes of a machine: the second one waits for the first and reads its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

try:
    import fcntl
except ImportError:  # no file locks here: every process compiles for itself
    fcntl = None  # type: ignore[assignment]

_held: set[str] = set()  # by the thread that holds Numba's compiler lock


def compile_once(compiled: Any) -> Any:
    """Lock a kernel's source file while it is compiled, so that ranks that start together do not all compile it.

    Numba looks for a result on disk at the beginning of `compile`. A kernel locks the files of those it calls
    while it holds its own; as imports have no cycle, no two processes wait for each other.
    """
    source, compile_here = compiled.py_func.__code__.co_filename, compiled.compile

    def compile_locked(signature: Any) -> Any:
        with global_compiler_lock, _locked(source):
            return compile_here(signature)

    compiled.compile = compile_locked
    return compiled


@contextmanager
def _locked(source: str) -> Iterator[None]:
    if fcntl is None or source in _held:
        yield
        return
    with open(source) as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        _held.add(source)
        try:
            yield
        finally:
            _held.discard(source)
