"""Per-node results as .npy or .parquet files, written in one rename."""

import os
import tempfile
from pathlib import Path

import numpy as np

from shoal.errors import ShoalError

SUFFIXES = (".npy", ".parquet")


def check_output(path: Path) -> None:
    """Refuse a result file that could not be written, before any work starts."""
    if path.suffix not in SUFFIXES:
        raise ShoalError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ShoalError(f"{path.parent} does not exist: make the folder first")


def write_nodes(path: Path, column: str, values: np.ndarray) -> None:
    """Write one row per node: the array itself as .npy, or columns `node` and `column` as .parquet."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            if path.suffix == ".npy":
                np.save(file, values, allow_pickle=False)
            else:
                _write_parquet(file, column, values)
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _write_parquet(file: object, column: str, values: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(values.reshape(-1))
    cells = flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    pq.write_table(pa.table({"node": pa.array(np.arange(len(values))), column: cells}), file)
