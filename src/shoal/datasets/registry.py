"""Look-up of the published graphs by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shoal.datasets.catalogue import DATASETS
from shoal.datasets.dataset import Dataset
from shoal.datasets.generators import GENERATORS
from shoal.errors import unknown_name

REGISTERED: Mapping[str, Dataset] = MappingProxyType({dataset.name: dataset for dataset in DATASETS})


def registered() -> Mapping[str, Dataset]:
    """Every registered dataset by name."""
    return REGISTERED


def find_dataset(name: str) -> Dataset:
    """The registered dataset called `name`; an unknown name raises ShoalError with the nearest one."""
    if name not in REGISTERED:
        raise unknown_name("dataset", name, (*REGISTERED, *GENERATORS))
    return REGISTERED[name]
