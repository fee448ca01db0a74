"""The method `metis-volume`: METIS's volume objective."""

from __future__ import annotations

import numpy as np

from shoal.partitioning.methods.metis import MAX_ENTRIES, run_metis
from shoal.partitioning.work import PARTITION_METHODS, Work, traits


@PARTITION_METHODS.named("metis-volume")
@traits(entry_bytes=90, node_bytes=200, needs={"pymetis": "shoal[partition]"}, max_entries=MAX_ENTRIES)
def assign_by_volume(work: Work) -> np.ndarray:
    """METIS's volume objective, on the symmetrised graph."""
    return run_metis(work, volume=True)
