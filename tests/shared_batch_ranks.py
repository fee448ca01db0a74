"""Mini-batch trainings that run alone and, the same ones, on ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import shoal
from rank_jobs import Job, make_graph, make_model, make_trainer
from shoal.distributed.transport import Transport
from shoal.partitioning.part import make_part
from shoal.sampling.base import make_sampler


@dataclass(frozen=True)
class Case:
    job: Job
    sampler: str
    options: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        return f"{self.job.name} {self.sampler} {self.options}"


WALK = (("roots", 20), ("depth", 2))
BOTH = (("directions", "both"),)
REUSE = (("label_reuse", 0.5), ("label_iterations", 1))
CASES = [
    *(Case(Job(model), "node", (("budget", 60),)) for model in ("sage", "gcn", "mixhop", "gat")),
    *(Case(Job(model, directed=True), "random-walk", WALK) for model in ("sage", "gcn", "gat")),
    Case(Job("gcn", double=True), "frontier", (("budget", 50), ("frontier", 10))),
    Case(Job("gcn"), "node", (("budget", 60), ("coverage", 5))),
    Case(Job("sage", sparse=True), "edge", (("num_edges", 40), ("coverage", 20))),
    Case(Job("sage", norm="batch", input_dropout=0.2), "node", (("budget", 60), ("setting", "inductive"))),
    Case(Job("gcn", directed=True), "node", (("budget", 60), ("coverage", 5))),
    Case(Job("gcn", cover=False), "node", (("budget", 60), ("coverage", 5))),
    Case(Job("gcn", partition="empty"), "node", (("budget", 2),)),
    Case(
        Job(
            "gat",
            double=True,
            settings=(("symmetric", True), ("edge_dropout", 0.4), ("attention_dropout", 0.3)),
        ),
        "node",
        (("budget", 60),),
    ),
    Case(
        Job("gcn", norm="batch", double=True, settings=(("norm_place", "input"),)), "node", (("budget", 60),)
    ),
    Case(Job("sage", partition="empty", norm="batch", multi_label=True), "node", (("budget", 30),)),
    *(Case(Job(model, double=True, weighted=True), "node", (("budget", 60),)) for model in ("gcn", "gat")),
    Case(Job("gcn", double=True, weighted=True, cover=False), "node", (("budget", 60),)),
    Case(Job("sage", double=True, weighted=True, directed=True), "node", (("budget", 60), ("coverage", 5))),
    Case(Job("gcn", double=True, directed=True, settings=BOTH), "node", (("budget", 60),)),
    Case(Job("sage", double=True, directed=True, weighted=True, settings=BOTH), "random-walk", WALK),
    Case(Job("gat", double=True, training=REUSE), "node", (("budget", 60),)),
    Case(Job("sage", double=True, sparse=True, directed=True, training=REUSE), "random-walk", WALK),
]


def make_source(case: Case, graph: shoal.Graph) -> shoal.Sampler:
    return make_sampler(case.sampler, graph, **dict(case.options))


def summarize(trainer: shoal.Trainer) -> dict[str, Any]:
    records = trainer.fit(3)
    return {
        "losses": [record["loss"] for record in records],
        "test": trainer.evaluate("test"),
        "last": records[-1],
    }


def train_alone(case: Case) -> dict[str, Any]:
    graph = make_graph(case.job)
    source = make_source(case, graph)
    return summarize(shoal.Trainer(make_model(case.job), graph, source, **dict(case.job.training)))


def train_here(transport: Transport, number: int) -> dict[str, Any]:
    case = CASES[number]
    graph = make_graph(case.job)
    used = max(transport.size - (case.job.partition == "empty"), 1)
    assignment = np.random.default_rng(1).integers(0, used, graph.num_nodes)
    part = make_part(graph, assignment, transport.size, transport.rank)
    return summarize(make_trainer(case.job, part, transport, make_source(case, graph)))
