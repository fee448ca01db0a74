"""Valid files of everything that is read, small enough to be read a thousand times a second, and how they are read."""

import fuzz_imports  # noqa: F401  (its samples come first)
import fuzz_stored  # noqa: F401
from fuzz_sample import SAMPLES as SAMPLES
from fuzz_sample import Read as Read
