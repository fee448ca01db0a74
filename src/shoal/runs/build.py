"""Building a model, a sampler and a trainer from a configuration."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import torch
from torch import nn

from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.labels import is_regression
from shoal.memory import require_memory
from shoal.models.conv import CONVS
from shoal.models.gnn import GNN
from shoal.models.module import MODELS
from shoal.partitioning.part import Part
from shoal.partitioning.partition import Partition
from shoal.runs.config import RunConfig
from shoal.runs.defaults import IMBALANCED
from shoal.runs.training_section import name_callbacks
from shoal.sampling.base import Sampler, make_sampler
from shoal.sampling.clipped import ClippedSampler
from shoal.sampling.feature_cache import FeatureCaching
from shoal.settings import list_settings
from shoal.training.baselines import count_training_nodes
from shoal.training.callback import CALLBACKS, Callback
from shoal.training.loss import Loss, default_loss, loss_settings, make_loss
from shoal.training.trainer import Trainer


def make_model(config: RunConfig, num_features: int, num_classes: int) -> nn.Module:
    """The model a configuration describes; the seed decides its initial weights."""
    settings = config.model.resolve()
    name = settings.pop("name")
    num_features += num_classes if config.training.label_reuse is not None else 0
    if name in CONVS:
        hidden = settings.pop("hidden")
        return GNN(name, num_features, hidden, num_classes, seed=config.training.seed, **settings)
    model = MODELS[name]
    seed = {"seed": config.training.seed} if "seed" in list_settings(model) else {}
    try:
        inspect.signature(model).bind(num_features, num_classes, **settings, **seed)
    except TypeError as error:
        raise ShoalError(
            f"model {name!r} cannot be made ({error}): it must take (in_features, num_classes, **settings)"
        ) from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        return model(num_features, num_classes, **settings, **seed)


def check_training_graph(graph: Graph, setting: str) -> None:
    """Raise if the inductive training graph may exceed the memory budget; all edges of its nodes are an upper bound."""
    if setting == "transductive" or graph.train_mask is None or graph.train_mask.all():
        return
    nodes = np.flatnonzero(graph.train_mask)
    entries = int((graph.indptr[nodes + 1] - graph.indptr[nodes]).sum())
    size = graph.indices.itemsize * entries + 4 * graph.num_nodes + 24 * len(nodes)
    require_memory(size, "the inductive training graph, at most,", "train with training.setting=transductive")


def make_batches(config: RunConfig, graph: Graph) -> Sampler:
    """The sampler a configuration describes; the full-batch sampler if steps take the whole graph."""
    check_training_graph(graph, config.training.setting)
    options = {"setting": config.training.setting, "seed": config.training.seed}
    if not config.draws:
        return make_sampler("full", graph, **options)
    settings = config.sampler.resolve()
    sampler = make_sampler(settings.pop("name"), graph, **options, **settings)
    multiple = config.training.node_multiple
    return sampler if multiple == 1 else ClippedSampler(sampler, multiple)


def _make_loss(config: RunConfig, *, regression: bool) -> Loss:
    """The loss a configuration describes, or the task's default loss, which must have all changed loss settings."""
    name = config.training.loss or default_loss(regression=regression)
    declared = loss_settings(config.training.loss or default_loss(regression=False))
    chosen = {key: getattr(config.training, key) for key in declared}
    known = loss_settings(name)
    return make_loss(
        name,
        **{key: value for key, value in chosen.items() if key in known or value != declared[key].default},
    )


def _make_callbacks(config: RunConfig) -> list[Callback]:
    """The callbacks that a configuration names, with the settings it gives each."""
    return [
        CALLBACKS[name](**config.training.given.get(name, {})) for name in name_callbacks(config.training)
    ]


def note_settings(config: RunConfig, trainer: Trainer) -> tuple[str, ...]:
    """Notices of settings that will disappoint."""
    return note_unused(config, trainer.model) + note_warmup(config) + note_imbalance(config, trainer)


def note_unused(config: RunConfig, model: nn.Module) -> tuple[str, ...]:
    """Notices of given settings that have no effect on a model."""
    if "hidden" not in config.model.given or not isinstance(model, GNN):
        return ()
    if len(model.layers) > 1 or model.classifier is not None:
        return ()
    return (
        "model.hidden has no effect: the only layer gives the logits and has one column per class; "
        "set a larger model.num_layers, or model.head_layers=1",
    )


def note_warmup(config: RunConfig) -> tuple[str, ...]:
    """A sentence if the run ends before the learning rate has risen."""
    warmup, epochs = config.training.warmup, config.training.epochs
    if warmup < epochs:
        return ()
    return (
        f"training.warmup is {warmup} and the run has {epochs} epochs: the learning rate does not reach training.lr",
    )


def note_imbalance(config: RunConfig, trainer: Trainer) -> tuple[str, ...]:
    """A sentence if one class has most of the training nodes and accuracy, which nobody asked for, chooses the weights."""
    if config.training.metric is not None or trainer.metric != "accuracy":
        return ()
    trainer.transport.phase = "the counts of the classes"
    *classes, nodes = count_training_nodes(trainer.share).tolist()
    share = max(classes) / max(nodes, 1)
    if share == 1:
        return (
            "all training nodes are of one class: there is nothing to learn, and an accuracy of 1 says nothing",
        )
    if share <= IMBALANCED:
        return ()
    number, names = classes.index(max(classes)), trainer.graph.class_names
    return (
        f"{share:.0%} of the training nodes are of class {number if names is None else names[number]}, and accuracy chooses "
        "the best weights: --set training.metric=f1_macro counts all classes alike (docs/howto/class-imbalance.md)",
    )


def prepare_graph(config: RunConfig, graph: Graph, checkpoints: Path | None = None) -> Graph:
    """The graph that a configuration's model trains on. Its files go to the nearest existing folder above `checkpoints`."""
    if config.model.name not in CONVS:
        return graph
    conv = CONVS[config.model.name]
    above = [] if checkpoints is None else checkpoints.absolute().parents
    folder = next((one for one in above if one.is_dir()), None)
    return conv.prepare_graph(graph, folder, **config.model.select(conv))


def make_trainer(
    config: RunConfig,
    graph: Graph | Part,
    checkpoints: Path | None = None,
    *,
    whole: Graph | None = None,
    transport: Transport | None = None,
    swapped: Partition | None = None,
) -> Trainer:
    """The trainer a configuration describes.

    Args:
        graph: the graph, or this rank's part of it.
        whole: the graph that shared batches of ranks with parts are drawn from; None for full-batch training.
        swapped: parts of the graph for method swapped, else None.
    """
    config.validate()
    if isinstance(graph, Graph):
        graph = prepare_graph(config, graph, checkpoints)
    source = graph if isinstance(graph, Graph) else whole
    trainer = Trainer(
        make_model(config, graph.num_features, graph.num_classes),
        graph,
        None if source is None else make_batches(config, source),
        transport=transport,
        exchange=config.make_exchange(),
        swapped=swapped,
        setting=config.training.setting,
        features=FeatureCaching(**config.features.resolve()),
        checkpoints=checkpoints,
        loss=_make_loss(config, regression=is_regression(graph.y)),
        callbacks=_make_callbacks(config),
        **config.training.select(Trainer, without=("loss", "callbacks")),
    )
    if trainer.share.reuse is not None:
        trainer.share.reuse.seed = config.training.seed
    return trainer
