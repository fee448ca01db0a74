"""What bench_step.py runs inside the environment that has DGL: answers each line of JSON with one time in ms.

DGL's last CPU release needs an older torch, hence the second environment:
    python3 -m venv dgl && dgl/bin/pip install torch==2.2.1 dgl==2.1.0 "numpy<2" torchdata==0.7.1 pydantic pyyaml pandas scipy
"""

import json
import sys
import time

import dgl
import dgl.function as fn
import torch
from torch import nn


class Layer(nn.Module):
    """[mean of neighbours · W_neigh ‖ own · W_self] + b, ReLU, dropout."""

    def __init__(self, f_in, f_out, rate):
        super().__init__()
        self.neighbours = nn.Linear(f_in, f_out // 2, bias=False)
        self.own = nn.Linear(f_in, f_out // 2, bias=False)
        self.bias = nn.Parameter(torch.zeros(f_out))
        self.dropout = nn.Dropout(rate)

    def forward(self, graph, h):
        first = self.neighbours.in_features > self.neighbours.out_features
        z = mean(graph, self.neighbours(h)) if first else self.neighbours(mean(graph, h))
        return self.dropout(torch.relu(torch.cat([z, self.own(h)], 1) + self.bias))


def mean(graph, h):
    with graph.local_scope():
        graph.ndata["h"] = h
        graph.update_all(fn.copy_u("h", "m"), fn.mean("m", "o"))
        return graph.ndata["o"]


def load(path):
    arrays = torch.load(path)
    return dgl.graph(("csr", (arrays["indptr"], arrays["indices"], []))).reverse(), arrays


def prepare(request):
    torch.set_num_threads(request["threads"])
    graph, arrays = load(request["path"])
    if request["case"] == "mean":
        return lambda: mean(graph, arrays["h"])
    layers = nn.ModuleList([Layer(a, b, request["rate"]) for a, b in request["widths"]])
    classifier = nn.Linear(request["widths"][-1][1], request["classes"])
    optimizer = torch.optim.Adam([*layers.parameters(), *classifier.parameters()], lr=0.01, fused=True)

    def step():
        h = arrays["h"]
        for layer in layers:
            h = layer(graph, h)
        loss = nn.functional.cross_entropy(classifier(h), arrays["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main():
    run = None
    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            run = prepare(request)
            run()
        start = time.perf_counter()
        run()
        print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}), flush=True)


main()
