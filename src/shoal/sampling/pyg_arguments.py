"""Arguments of PyG's loaders and of torch's DataLoader: which ones Shoal's loaders accept, and why others are refused."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

from shoal.errors import ShoalError


class _Taken(NamedTuple):
    """Values without effect here, None for any; and the reason why others are refused."""

    values: tuple[Any, ...] | None
    reason: str = ""


_ARGUMENTS = {
    "pin_memory": _Taken((False,), "it is for a GPU, and batches stay on the CPU"),
    "pin_memory_device": _Taken(("",), "it is for a GPU, and batches stay on the CPU"),
    "persistent_workers": _Taken(None),
    "prefetch_factor": _Taken(None),
    "multiprocessing_context": _Taken(None),
    "filter_per_worker": _Taken(None),
    "is_sorted": _Taken(None),
    "timeout": _Taken((0,), "threads of this process draw batches"),
    "worker_init_fn": _Taken((None,), "threads of this process draw batches, and a batch depends on seed and number alone"),
    "generator": _Taken((None,), "a batch depends on `seed` and its number alone"),
    "collate_fn": _Taken((None,), "give `transform`, which is called with each batch"),
    "replace": _Taken((False,), "samples are drawn without replacement"),
    "disjoint": _Taken((False,), "the neighbourhoods of a batch are one graph"),
    "directed": _Taken((True,), "a batch has the edges that were drawn"),
    "subgraph_type": _Taken(("directional",), "a batch has the edges that were drawn"),
    "drop_last": _Taken(None),
    "time_attr": _Taken((None,), "graphs have no timestamps"),
    "temporal_strategy": _Taken(("uniform",), "graphs have no timestamps"),
    "input_time": _Taken((None,), "graphs have no timestamps"),
    "weight_attr": _Taken((None,), "neighbours are drawn with equal probabilities; edge_weight is given with a batch"),
    "transform_sampler_output": _Taken((None,), "give `transform`, which is called with each batch"),
    "neighbor_sampler": _Taken((None,), "Shoal draws the neighbours; shoal.SubgraphLoader takes a sampler"),
}  # fmt: skip


def drop_pyg_arguments(options: dict[str, Any], own: Container[str] = ()) -> dict[str, Any]:
    """`options` without PyG's arguments that have no effect here; a value that would have one raises ShoalError.

    Arguments in `own` are settings of the sampler and kept.
    """
    kept = {}
    for name, value in options.items():
        taken = _ARGUMENTS.get(name)
        if taken is None or name in own:
            kept[name] = value
        elif not (taken.values is None or value is None or _is_one_of(value, taken.values)):
            raise ShoalError(f"{name}={value!r} is not supported: {taken.reason}; leave it out")
    return kept


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether a number, a string or an enum member is among `values`; arrays and functions never are."""
    plain = getattr(value, "value", value)
    return isinstance(plain, (bool, int, float, str)) and plain in values
