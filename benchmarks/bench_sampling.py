"""Sampling: every claim beside its peer, interleaved in one process; ratios first, environment last.

    SHOAL_DATA=folder-of-graphs python benchmarks/bench_sampling.py                     # about 3 minutes
    SHOAL_DATA=folder-of-graphs python benchmarks/bench_sampling.py --profile small     # a minute
    SHOAL_DATA=folder-of-graphs python benchmarks/bench_sampling.py --profile large     # graphs of 2²⁴ nodes
    python benchmarks/bench_sampling.py --only draw,methods --seconds 5

`ratio` is the peer's least time over ours (for a limit: the limit over ours), so more is better and 1 is even;
a claim that is not reached is printed as LOST. The peers are NumPy restatements: of the frontier law by its
definition, and of the walk and edge samplers of PyG. `--pyg PYTHON` names the Python of an environment with
torch-sparse (see pyg_worker.py): PyG's own walk sampler then runs there, in turn with ours. Its edge sampler is
only restated: for 4,000 edges it fills a matrix of 4,000 × entries random numbers. Least times are compared
because other processes only ever add to a time; median and spread are printed beside them.
`--only` replaces those parts of `results/sampling-PROFILE.json` and leaves the others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

import shoal
from sampling_graphs import load_ppi, make_even, make_skewed
from shoal.kernels.csr import induce_csr
from shoal.kernels.jit import kernel
from shoal.memory import keep_freed_memory
from shoal.sampling.base import Sampler
from shoal.sampling.frontier_methods.reference import draw_by_definition
from shoal.sampling.normalize import count_batches
from shoal.sampling.prefetch import Prefetcher, gather_fields
from shoal.threads import set_threads
from shoal.training.loss import compute_loss
from timing import Worker, environment, interleave, number, print_environment

BUDGET, FRONTIER = 8000, 1000
# (scale, degree) of the two skewed graphs, scales between which a graph grows
PROFILES = {
    "small": ([(16, 16), (14, 100)], (16, 18)),
    "regular": ([(20, 16), (18, 100)], (18, 21)),
    "large": ([(20, 16), (18, 100)], (20, 24)),
}
Job = Callable[[int], object]


@dataclass
class Result:
    claim: str
    ours: str
    peer: str
    ratio: float
    must_reach: float
    ours_ms: dict[str, float]
    peer_ms: dict[str, float]

    @property
    def verdict(self) -> str:
        return "ok" if self.ratio >= self.must_reach else "LOST"


def race(jobs: dict[str, Job], seconds: float) -> dict[str, dict[str, float]]:
    """The jobs in turn, job(k) for k = 0, 1, …; milliseconds."""
    return interleave({name: number(job) for name, job in jobs.items()}, seconds)


def compare(
    claim: str, times: dict[str, dict[str, float]], ours: str, peer: str, must_reach: float
) -> Result:
    ratio = times[peer]["min"] / times[ours]["min"]
    return Result(claim, ours, peer, ratio, must_reach, times[ours], times[peer])


def limit(claim: str, ours: str, times: dict[str, float], limit_ms: float) -> Result:
    bound = {"min": limit_ms, "median": limit_ms, "spread": 0.0, "runs": 0}
    return Result(claim, ours, f"≤ {limit_ms:g} ms", limit_ms / times["min"], 1.0, times, bound)


# -- the claims ---------------------------------------------------------------------------------------------


def bench_draw(profile: str, seconds: float) -> Iterator[Result]:
    """The frontier draw beside its definition in NumPy, and beside the other structures."""
    for scale, degree in PROFILES[profile][0]:
        graph = make_skewed(scale, degree)
        samplers = {
            m: shoal.FrontierSampler(graph, BUDGET, FRONTIER, method=m) for m in shoal.FrontierSampler.METHODS
        }
        jobs: dict[str, Job] = {m: sampler.draw_nodes for m, sampler in samplers.items()}
        times = race({**jobs, "numpy": lambda k, g=graph: draw_numpy(g, k)}, seconds)
        yield compare(f"frontier draw, {graph.name}", times, "clocks", "numpy", 50)
        for other in ("dashboard", "fenwick", "buckets"):
            must = 0 if other == "buckets" else 1.6
            yield compare(f"frontier draw, {graph.name}", times, "clocks", other, must)
        yield from bench_extraction(samplers["clocks"], seconds / 2)


def bench_extraction(sampler: Sampler, seconds: float) -> Iterator[Result]:
    """The induced subgraph of one batch's nodes beside the plain version with an array of numbers."""
    graph, nodes = sampler.graph, sampler.draw_nodes(0)
    scratch = np.full(graph.num_nodes, -1, np.int32)
    jobs: dict[str, Job] = {
        "extractor": lambda k: sampler.extract(nodes),
        "plain": lambda k: induce_csr(graph.indptr, graph.indices, nodes, scratch),
    }
    yield compare(f"extraction, {graph.name}", race(jobs, seconds), "extractor", "plain", 1.5)


def draw_numpy(graph: shoal.Graph, k: int) -> np.ndarray:
    rng = np.random.default_rng(k)
    return draw_by_definition(graph.indptr, graph.indices, 1 << 62, FRONTIER, BUDGET, 20 * BUDGET, rng)


def bench_ppi(profile: str, seconds: float) -> Iterator[Result]:
    """A whole frontier batch of PPI's training graph, ready for forward and backward."""
    graph = load_ppi()
    plain = shoal.FrontierSampler(graph, BUDGET, FRONTIER, setting="inductive")
    normalized = shoal.FrontierSampler(graph, BUDGET, FRONTIER, setting="inductive", coverage=50)

    def make(sampler: Sampler) -> Job:
        return lambda k: sampler.sample(k).block(0).adjacency("mean").transpose()

    times = race({"plain": make(plain), "normalised": make(normalized)}, seconds)
    for name in times:
        yield limit("frontier subgraph, extraction, transpose, PPI", name, times[name], 8)
    num_batches = int(np.ceil(50 * plain.graph.num_nodes / BUDGET))
    times = race({"counting": lambda k: count_batches(plain, num_batches)}, 0.0)
    yield limit("normalisation, coverage 50, PPI", "counting", times["counting"], 10_000)


def bench_walk_and_edge(profile: str, seconds: float, pyg: str | None = None) -> Iterator[Result]:
    """Walk and edge samplers with extraction, beside what PyG does, restated in NumPy and SciPy, and PyG's own."""
    if pyg is None:
        print(
            "!! PEER MISSING: PyG's own samplers. See pyg_worker.py for their environment; name it by --pyg"
        )
    for graph in (load_ppi().train_graph("inductive"), make_skewed(*PROFILES[profile][0][0])):
        graph = shoal.Graph(graph.indptr, graph.indices, name=graph.name)
        ones, n = np.ones(graph.num_entries, np.float32), graph.num_nodes
        matrix = sp.csr_array((ones, graph.indices, graph.indptr), shape=(n, n))
        rows = np.repeat(np.arange(graph.num_nodes), graph.degree)
        inverse = 1 / np.maximum(graph.degree, 1)
        weight = inverse[rows] + inverse[graph.indices]

        def induce(nodes: np.ndarray, matrix: sp.csr_array = matrix) -> object:
            return matrix[nodes][:, nodes]

        def walk(k: int, graph: shoal.Graph = graph) -> object:
            rng = np.random.default_rng(k)
            node = rng.integers(0, graph.num_nodes, 3000)
            seen = [node]
            for _ in range(2):
                degree = graph.degree[node]
                place = graph.indptr[node] + (rng.random(len(node)) * degree).astype(np.int64)
                node = np.where(degree > 0, graph.indices[np.minimum(place, graph.num_entries - 1)], node)
                seen.append(node)
            return induce(np.unique(np.concatenate(seen)))

        def edge(k: int, rows: np.ndarray = rows, weight: np.ndarray = weight, graph: shoal.Graph = graph):
            rng = np.random.default_rng(k)
            score = np.log(rng.random(len(weight))) / weight
            drawn = np.argpartition(score, -4000)[-4000:]
            return induce(np.unique(np.concatenate([rows[drawn], graph.indices[drawn]])))

        ours_walk = shoal.RandomWalkSampler(graph, roots=3000, depth=2)
        ours_edge = shoal.EdgeSampler(graph, num_edges=4000)
        for name, ours, peer in (("random walk", ours_walk, walk), ("edge", ours_edge, edge)):
            times = race({"ours": ours.sample, "numpy": peer}, seconds / 2)
            yield compare(f"{name} subgraph, {graph.name}", times, "ours", "numpy", 10)

        if pyg is not None:
            yield compare_pyg(graph, pyg, seconds)


def compare_pyg(graph: shoal.Graph, python: str, seconds: float) -> Result:
    """Normalised walk subgraphs of PyG and ours, taking turns; both have edge_index."""
    ours = shoal.RandomWalkSampler(graph, roots=3000, depth=2)
    ours.normalize(coverage=1)

    def sample(k: int) -> None:
        batch = ours.sample(k)
        _ = batch.edge_index, batch.n_id, batch.node_norm, batch.edge_norm

    peer = Worker(python, "pyg_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/graph.npz"
        np.savez(path, indptr=graph.indptr, indices=graph.indices)
        peer.ask({"path": path, "roots": 3000, "depth": 2, "coverage": 1, "threads": 1})
    times = interleave({"ours": number(sample), "PyG": lambda: peer.ask({})}, seconds / 2)
    peer.close()
    return compare(f"random walk subgraph, normalised, edge_index, {graph.name}", times, "ours", "PyG", 10)


def bench_threads(profile: str, seconds: float) -> Iterator[Result]:
    """16 batches by one thread and by two."""
    sampler = shoal.FrontierSampler(make_skewed(*PROFILES[profile][0][0]), BUDGET, FRONTIER)
    pools = {count: ThreadPoolExecutor(count) for count in (1, 2)}
    jobs: dict[str, Job] = {
        f"{count} threads": lambda k, pool=pool: list(pool.map(sampler.sample, range(16 * k, 16 * k + 16)))
        for count, pool in pools.items()
    }
    for count, pool in pools.items():
        jobs[f"{count} threads, arithmetic only"] = lambda k, pool=pool: list(pool.map(burn, [1 << 20] * 16))
    times = race(jobs, seconds)
    yield compare("16 frontier subgraphs", times, "2 threads", "1 threads", 1.8)
    control = "2 threads, arithmetic only", "1 threads, arithmetic only"
    yield compare("what two threads can gain on this machine now", times, *control, 0)


@kernel
def burn(count):
    """Work without memory or locks: shows how much of a second core is free."""
    x = 1.0
    for _ in range(count):
        x = x * 1.0000001 + 1e-9
    return x


def bench_growth(profile: str, seconds: float) -> Iterator[Result]:
    """The same batch from a graph many times larger: peer is the small graph, 1/1.5 must be kept."""
    small, large = (make_even(scale, 16) for scale in PROFILES[profile][1])
    jobs: dict[str, Job] = {
        graph.name: shoal.FrontierSampler(graph, BUDGET, FRONTIER).sample for graph in (small, large)
    }
    yield compare(
        "frontier subgraph as the graph grows", race(jobs, seconds), large.name, small.name, 1 / 1.5
    )


def bench_overlap(profile: str, seconds: float) -> Iterator[Result]:
    """A step of 2-layer SAGE-512 on ready batches, and with one thread sampling ahead; PPI with 500 inputs."""
    keep_freed_memory()  # as the trainer does
    ppi = load_ppi().train_graph("inductive")
    rng = np.random.default_rng(0)
    graph = shoal.Graph(
        ppi.indptr,
        ppi.indices,
        x=rng.standard_normal((ppi.num_nodes, 500), np.float32),
        y=ppi.y,
        train_mask=np.ones(ppi.num_nodes, np.bool_),
    )
    sampler = shoal.FrontierSampler(graph, BUDGET, FRONTIER)
    model = shoal.GNN("sage", 500, 512, graph.num_classes, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    ready = [sampler.sample(k) for k in range(4)]
    for batch in ready:
        _ = batch.x, batch.y, batch.block(0).adjacency("mean").transpose()

    def step(batch: shoal.Batch) -> None:
        loss = compute_loss(model(batch, step=0), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def train_ready(k: int) -> None:
        for i in range(6):
            step(ready[i % 4])

    def train_ahead(k: int) -> None:
        for _ in range(6):
            step(next(ahead))

    def only_sample(k: int) -> None:
        for i in range(6):
            gather_fields(sampler.sample(6 * k + i))

    with Prefetcher(sampler, num_threads=1, capacity=2) as ahead:
        times = race({"step alone": train_ready, "sampling ahead": train_ahead}, seconds)
    times |= race({"sampling": only_sample}, 2.0)
    times["steps + sampling, nothing hidden"] = {
        key: times["step alone"][key] + times["sampling"][key] for key in times["step alone"]
    }
    yield compare("6 steps of SAGE-512", times, "steps + sampling, nothing hidden", "step alone", 1 / 1.08)
    yield compare("6 steps of SAGE-512", times, "sampling ahead", "step alone", 1 / 1.08)


BENCHES = {
    "draw": bench_draw,
    "ppi": bench_ppi,
    "walk": bench_walk_and_edge,
    "threads": bench_threads,
    "growth": bench_growth,
    "overlap": bench_overlap,
}


def show(result: Result) -> None:
    ours, peer = result.ours_ms, result.peer_ms
    print(
        f"{result.ratio:8.2f}×  (must {result.must_reach:5.2f}) {result.verdict:4}  {result.claim}: "
        f"{result.ours} {ours['min']:.2f} / {ours['median']:.2f} ± {ours['spread']:.2f} ms, "
        f"{result.peer} {peer['min']:.2f} / {peer['median']:.2f} ± {peer['spread']:.2f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--profile", choices=PROFILES, default="regular")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each race")
    parser.add_argument("--only", default=",".join(BENCHES), help=f"some of {', '.join(BENCHES)}")
    parser.add_argument("--pyg", help="Python of an environment that has torch-sparse")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    print("   ratio                       claim: ours min / median ± spread, peer min / median ± spread")
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"sampling-{args.profile}.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    lost = total = 0
    for name in args.only.split(","):
        set_threads(None if name == "overlap" else 1)  # claims are for one thread unless they say otherwise
        bench = partial(BENCHES[name], pyg=args.pyg) if name == "walk" else BENCHES[name]
        results = []
        for result in bench(args.profile, args.seconds):
            show(result)
            results.append({**asdict(result), "verdict": result.verdict})
        total += len(results)
        lost += sum(result["verdict"] == "LOST" for result in results)
        command = f"python benchmarks/bench_sampling.py --profile {args.profile} --only {name}"
        command += " --pyg PYTHON" if args.pyg and name == "walk" else ""
        record[name] = {"command": command, "results": results, "environment": environment()}
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(f"{total - lost} of {total} claims reached")
    print_environment()


if __name__ == "__main__":
    main()
