"""One call of KaMinPar in a process of its own: GRAPH PRESET SEED PARTS IMBALANCE OUT. Run as a file, without shoal.

KaMinPar reads uninitialised memory, so its result depends on what the process did before, and two calls may differ. Its
caller starts a process for each call, in which such memory is 0.
"""

import sys

import numpy as np


def main() -> None:
    """Partition the graph file named on the command line and write the assignment as int32."""
    import kaminpar

    graph, preset, seed, num_parts, imbalance, out = sys.argv[1:]
    kaminpar.reseed(int(seed))
    partitioner = kaminpar.KaMinPar(1, kaminpar.context_by_name(preset))
    loaded = kaminpar.load_graph(graph, kaminpar.GraphFileFormat.PARHIP, preset.startswith("terapart"))
    found = partitioner.compute_partition(loaded, int(num_parts), float(imbalance))
    np.asarray(found, np.int32).tofile(out)


if __name__ == "__main__":
    main()
