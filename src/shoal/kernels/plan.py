"""The scheduler: how to share the work of a sparse product, and in which order to multiply a layer (JPDC'21 §6)."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from shoal.errors import unknown_name

CACHE_LINE = 64
VARIANTS = ("auto", "rows", "features")
# Time of one multiply-add in a sparse product over one in a dense product. Geometric means of 18 sizes: 2.9 on a quiet EPYC, 1.3 (in
# cache, degree 80) to 25 (out of cache, degree 5); 10.5 on a Xeon with much other work (benchmarks/bench_sparse_weight.py). On
# the wide blocks of benchmarks/papers/scheduler.py 5 costs 3 % at most, 10 cost 41 %. The order depends on it only where num_rows
# and num_columns differ; otherwise both orders have the same dense work.
SPARSE_WEIGHT = 5.0
# Below this average degree copying the columns of a part costs more than its cache hits save, so it is not even
# tried: measured slower at degree 15 and faster at 100 (n = 8,000, f = 512); the bound between is a guess.
MIN_FEATURES_DEGREE = 24
_TRIALS = 6


@lru_cache
def cache_bytes(level: int) -> int:
    """Size of the CPU's data cache of this level as the system reports it; a common size where it does not."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            found = int((index / "level").read_text()) == level
            if found and (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                return int(size.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(size[-1], 0)
        except (OSError, ValueError):
            continue
    return {1: 32 << 10, 2: 512 << 10}.get(level, 16 << 20)


def part_width(num_columns: int, f: int, item_bytes: int, num_threads: int, cache: int | None = None) -> int:
    """Columns in one part of the feature-partitioned product (IPDPS'19 theorem 2).

    `Qf = max(p, b·n·f / S)` parts with p threads, b bytes per value and S bytes of private cache. Widths are whole cache
    lines, so that no line belongs to two parts: rounded up where they share f among the threads, down where they must
    fit in the cache, and one line where not even that fits.
    """
    line = CACHE_LINE // item_bytes
    shared = -(-f // (num_threads * line)) * line
    fitting = (cache or cache_bytes(2)) // max(CACHE_LINE * num_columns, 1) * line
    return max(min(shared, fitting), line)


@dataclass(frozen=True)
class ProductPlan:
    """How one sparse product is computed; every choice gives the same result, bit for bit."""

    variant: str  # "rows" or "features"
    prefetch: bool
    part_width: int
    num_threads: int

    def explain(self) -> str:
        """The choice in words."""
        threads = f"{self.num_threads} thread{'' if self.num_threads == 1 else 's'}"
        if self.variant == "features":
            return f"feature-partitioned, parts of {self.part_width} columns, {threads}"
        ahead = "with" if self.prefetch else "without"
        return f"row-parallel {ahead} prefetch, {threads}"


@dataclass
class _Choice:
    """The candidates for one kind of product and the time each took per multiply-add."""

    candidates: list[ProductPlan]
    times: dict[ProductPlan, list[float]] = field(default_factory=lambda: defaultdict(list))
    chosen: ProductPlan | None = None

    def next_plan(self) -> ProductPlan:
        return self.chosen or min(self.candidates, key=lambda plan: len(self.times[plan]))

    def record(self, plan: ProductPlan, seconds: float) -> None:
        self.times[plan].append(seconds)
        if all(len(self.times[candidate]) >= _TRIALS for candidate in self.candidates):
            self.chosen = min(self.candidates, key=lambda candidate: min(self.times[candidate]))


_choices: dict[tuple[int, ...], _Choice] = {}


class ProductTimer:
    """Picks the plan of one product and learns from how long it took.

    Which plan is fastest depends on the machine: prefetching gains a third on a Zen 3 with a small L2 and
    loses a fifth on a Xeon whose H fits its L2 or huge L3. So the first products of each kind (size of h,
    average degree and threads, to a factor of two) are run by each plan in turn, six times, and the fastest plan
    is kept. Nothing is computed for measuring alone, and the results do not depend on the choice.
    """

    def __init__(
        self,
        num_rows: int,
        num_columns: int,
        num_entries: int,
        f: int,
        item_bytes: int,
        variant: str,
        threads: int,
    ) -> None:
        if variant not in VARIANTS:
            raise unknown_name("spmm variant", variant, VARIANTS)
        size = num_columns * f * item_bytes
        self._choice: _Choice | None = None
        far = size > cache_bytes(2)
        if variant == "features":
            self.plan = ProductPlan(
                "features", False, part_width(num_columns, f, item_bytes, threads), threads
            )
        elif not far:
            self.plan = ProductPlan("rows", False, 0, threads)
        elif size > 4 * cache_bytes(3):
            self.plan = ProductPlan("rows", True, 0, threads)
        else:
            degree = num_entries // max(num_columns, 1)
            by_features = (
                variant == "auto"
                and degree >= MIN_FEATURES_DEGREE
                and num_columns * CACHE_LINE <= cache_bytes(2)
                and f * item_bytes >= threads * CACHE_LINE
            )
            key = (size.bit_length(), degree.bit_length(), threads, by_features, item_bytes)
            if key not in _choices:
                candidates = [ProductPlan("rows", ahead, 0, threads) for ahead in (True, False)]
                if by_features:
                    width = part_width(num_columns, f, item_bytes, threads)
                    candidates.append(ProductPlan("features", False, width, threads))
                _choices[key] = _Choice(candidates)
            self._choice = _choices[key]
            self.plan = self._choice.next_plan()
            if self.plan.variant == "features":
                width = part_width(num_columns, f, item_bytes, threads)
                self._recorded, self.plan = self.plan, ProductPlan("features", False, width, threads)
            else:
                self._recorded = self.plan
        self._work = max(num_entries * f, 1)

    def __enter__(self) -> ProductPlan:
        self._start = time.perf_counter()
        return self.plan

    def __exit__(self, *error: object) -> None:
        if self._choice is not None and self._choice.chosen is None and error[0] is None:
            self._choice.record(self._recorded, (time.perf_counter() - self._start) / self._work)


def explain_products() -> list[str]:
    """The plans chosen so far and their times, one line for each kind of product; for `shoal doctor` and reports."""
    lines = []
    for (size, degree, *_), choice in sorted(_choices.items()):
        kind = f"h up to {(1 << size) >> 10:,} KiB, degree up to {1 << degree}"
        tried = ", ".join(
            f"{plan.explain()}: {min(t) * 1e12:.1f} ps" for plan, t in choice.times.items() if t
        )
        settled = f"chose {choice.chosen.explain()}" if choice.chosen else "still trying"
        lines.append(f"{kind}: {settled} (per multiply-add: {tried})")
    return lines


@dataclass(frozen=True)
class LayerPlan:
    """In which order a layer multiplies, and what each order would cost in multiply-adds."""

    transform_first: bool
    aggregate_first_sparse: int
    aggregate_first_dense: int
    transform_first_sparse: int
    transform_first_dense: int

    def explain(self) -> str:
        """The chosen order of products, with the multiply-adds of both."""
        order = "A (H W)" if self.transform_first else "(A H) W"
        return (
            f"{order}: (A H) W needs {self.aggregate_first_sparse:,} sparse + {self.aggregate_first_dense:,} dense "
            f"multiply-adds forward and backward, A (H W) {self.transform_first_sparse:,} + "
            f"{self.transform_first_dense:,}; a sparse one counts {SPARSE_WEIGHT:g} times"
        )


def plan_layer(
    num_rows: int,
    num_columns: int,
    num_entries: int,
    f_in: int,
    f_out: int,
    needs_input_grad: bool,
    *,
    training: bool = True,
    aggregated_once: bool = False,
) -> LayerPlan:
    """Choose between `(A H) W` and `A (H W)`, A (n, m) with nnz entries, counting forward and backward.

    | | (A H) W | A (H W) |
    |---|---|---|
    | forward | nnz·f_in + n·f_in·f_out | m·f_in·f_out + nnz·f_out |
    | weight gradient | (AH)ᵀ G: n·f_in·f_out | Hᵀ (Aᵀ G): nnz·f_out + m·f_in·f_out |
    | input gradient | Aᵀ (G Wᵀ): n·f_in·f_out + nnz·f_in | (Aᵀ G) Wᵀ: m·f_in·f_out |

    An input layer needs no input gradient, so aggregating first saves its whole backward product. With
    `aggregated_once` the input is fixed and `A H` is computed before training, at no cost in a step.
    Equal costs aggregate first.
    """
    dense = f_in * f_out
    gradients = 1 + needs_input_grad if training else 0
    first_sparse = num_entries * f_in * ((not aggregated_once) + (needs_input_grad and training))
    first_dense = num_rows * dense * (1 + gradients)
    second_sparse = num_entries * f_out * (1 + training)
    second_dense = num_columns * dense * (1 + gradients)
    cheaper = SPARSE_WEIGHT * second_sparse + second_dense < SPARSE_WEIGHT * first_sparse + first_dense
    return LayerPlan(cheaper, first_sparse, first_dense, second_sparse, second_dense)
