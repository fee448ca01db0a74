"""Valid files of everything that is read, small enough to be read a thousand times a second, and how they are read.

Importing this loads what reading needs, so that processes that are forked from here begin at once.
"""

import fuzz_imports  # noqa: F401  (its samples come first)
import fuzz_stored  # noqa: F401
import pandas  # noqa: F401  (pyarrow loads it with the first table)
import pyarrow.compute  # noqa: F401
from fuzz_sample import SAMPLES as SAMPLES
from fuzz_sample import Read as Read

from shoal.datasets.importers import FORMATS
from shoal.kernels.jit import load_kernels

len(FORMATS)
load_kernels()
