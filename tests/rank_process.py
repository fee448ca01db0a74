"""One live rank: `python rank_process.py DOOR` meets the others once, then runs the jobs that tests send through DOOR."""

from __future__ import annotations

import atexit
import gc
import json
import os
import socket
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from shoal.distributed.launch import joined_ranks
from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import Transport


def read_jobs(door: socket.socket, jobs: SimpleQueue[Any]) -> None:
    """Queue what the test sends; when it is gone, this rank is gone too, whatever it was doing."""
    try:
        with door.makefile() as lines:
            for line in lines:
                jobs.put(json.loads(line))
    finally:  # also of a connection that was reset
        os._exit(1)


def run_job(transport: Transport, module: str, function: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        answer = getattr(import_module(module), function)(transport, *arguments)
    except BaseException:
        return {"error": traceback.format_exc()}
    return {"answer": answer if transport.rank == 0 else None}


def check_threads_ended() -> None:
    """No thread of gloo outlives the transport: one that lets go of a tensor while Python ends would abort the rank."""
    gc.collect()
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text().strip() for task in (tasks.iterdir() if tasks.is_dir() else [])]
    assert not [name for name in names if "gloo" in name], names


def serve(path: str) -> None:
    jobs: SimpleQueue[Any] = SimpleQueue()
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(path)
        threading.Thread(target=read_jobs, args=(door, jobs), daemon=True).start()
        with joined_ranks() as transport:
            share_cores(transport, 1)
            door.sendall(f"{transport.rank}\n".encode())
            while (job := jobs.get()) is not None:  # null: nothing more to do
                door.sendall(f"{json.dumps(run_job(transport, *job))}\n".encode())
        check_threads_ended()


if __name__ == "__main__":
    atexit.register(gc.freeze)  # it ends faster, as commands do
    serve(sys.argv[1])
