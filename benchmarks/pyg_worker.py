"""What bench_sampling.py runs inside an environment that has torch-sparse: PyG's own GraphSAINT samplers.

Answers each line of JSON with the milliseconds of one subgraph. torch-sparse has no wheel for recent releases of
torch; building it takes about 50 minutes:
    python3 -m venv pyg && pyg/bin/pip install torch==2.13.0 torch-geometric numpy scipy setuptools wheel
    pyg/bin/pip install --no-build-isolation torch-scatter torch-sparse
"""

import json
import sys
import time

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import GraphSAINTRandomWalkSampler


def prepare(request):
    """Subgraphs with node_norm and edge_norm, one after the other, as a training loop takes them."""
    torch.set_num_threads(request["threads"])
    with np.load(request["path"]) as arrays:
        indptr, indices = arrays["indptr"], arrays["indices"]
    rows = torch.from_numpy(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)))
    data = Data(edge_index=torch.stack([rows, torch.from_numpy(indices).long()]), num_nodes=len(indptr) - 1)
    loader = GraphSAINTRandomWalkSampler(
        data, request["roots"], request["depth"], num_steps=20, sample_coverage=request["coverage"], log=False
    )
    loader.num_steps = 1 << 40
    return iter(loader)


def main():
    batches = None
    for line in sys.stdin:
        request = json.loads(line)
        if "path" in request:
            batches = prepare(request)
            next(batches)
        start = time.perf_counter()
        next(batches)
        print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}), flush=True)


main()
