"""Ctrl-C while a real process draws batches leaves nothing behind that could change later ones."""

import json
import select
import signal
import subprocess
import sys
import time

import numpy as np
import psutil

NUM_INTERRUPTS = 15  # of every case
LIMIT = 120  # seconds, for a child that has to compile its kernels
CASES = [
    ("frontier", {"budget": 3000, "frontier": 500}, 0),
    ("frontier", {"budget": 3000, "frontier": 500}, 1),
    ("neighbor", {"fanouts": (5, 5), "batch_size": 500}, 0),
    ("ladies", {"layer_size": 1000, "batch_size": 500}, 0),
    ("fastgcn", {"layer_size": 1000, "batch_size": 500}, 0),
]

CHILD = """
import json, signal, sys, threading
import shoal
from shoal.sampling.base import make_sampler
from shoal.threads import set_threads

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell's children ignore it
set_threads(1)
graph = shoal.load("blocks", num_nodes=20_000)


def draw_for_ever(sampler, num_threads):
    if num_threads:
        batches = shoal.Prefetcher(sampler, num_threads=num_threads)
        with batches:
            print("drawing", flush=True)
            for batch in batches:
                pass
    print("drawing", flush=True)
    while True:
        for k in range(12):
            sampler.sample(k)


cases, times = json.loads(sys.argv[1]), int(sys.argv[2])
for name, options, num_threads in cases:
    sampler, fresh = make_sampler(name, graph, **options), make_sampler(name, graph, **options)
    expected = [fresh.sample(k) for k in range(12)]
    sampler.sample(0)
    for _ in range(times):
        try:
            draw_for_ever(sampler, num_threads)
        except (KeyboardInterrupt, SystemError) as interrupt:  # Numba makes SystemError of one inside its own
            trace = interrupt.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
        print(trace.tb_frame.f_code.co_filename, flush=True)
        assert threading.active_count() == 1, threading.enumerate()
        for k, before in enumerate(expected):
            batch = sampler.sample(k)
            assert (batch.nodes == before.nodes).all(), f"{name}: other nodes in batch {k}"
            for block, old in zip(batch.blocks, before.blocks):
                assert (block.indices == old.indices).all(), f"{name}: other edges in batch {k}"
print("same", flush=True)
"""


def read_answer(child):
    """The child's next line. Python only prints an exception that a signal raises inside a finalizer: a child that goes on
    drawing gets the signal again, one that stands still hangs."""
    for _ in range(3):
        if select.select([child.stdout], [], [], 20)[0]:
            break
        before = sum(psutil.Process(child.pid).cpu_times()[:2])
        time.sleep(2)
        assert sum(psutil.Process(child.pid).cpu_times()[:2]) > before + 0.2, "the child hangs after a signal"
        child.send_signal(signal.SIGINT)
    return child.stdout.readline()


def test_batches_after_a_signal_are_the_same_as_ever():
    """Signals come at random times between the child's "drawing" and the exception that they raise."""
    pauses = np.random.default_rng(0).uniform(0, 0.02, NUM_INTERRUPTS * len(CASES))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(CASES), str(NUM_INTERRUPTS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        places = []
        for seconds in pauses:
            assert child.stdout.readline() == "drawing\n", child.communicate(timeout=LIMIT)[1]
            time.sleep(seconds)
            child.send_signal(signal.SIGINT)
            places.append(read_answer(child))
        rest, errors = child.communicate(timeout=LIMIT)
    finally:
        child.kill()
        child.wait()
    assert rest == "same\n", errors
    at_work = [place for place in places if "shoal" in place or "threading" in place]
    assert len(at_work) >= len(places) // 2, places  # the signals did meet the samplers drawing
