"""Shoal: graph neural networks on graphs too large for ordinary mini-batching.

Public names are loaded on first use, so that `import shoal` and `shoal --help` stay fast.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Torch and Numba each bring an OpenMP runtime whose idle threads spin by default, on the very cores the other
# one needs. OpenMP reads this when it is loaded: import shoal before torch to have it for both.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from shoal.batch import Batch as Batch
    from shoal.commands.progress import ProgressBar as ProgressBar
    from shoal.datasets import load as load
    from shoal.datasets.importers import FORMATS as FORMATS
    from shoal.distributed.exchange import EXCHANGES as EXCHANGES
    from shoal.distributed.transport import TRANSPORTS as TRANSPORTS
    from shoal.errors import ShoalError as ShoalError
    from shoal.graph import Graph as Graph
    from shoal.interop.loaders import ClusterLoader as ClusterLoader
    from shoal.interop.loaders import NeighborLoader as NeighborLoader
    from shoal.interop.stores import open_stores as open_stores
    from shoal.joining import join_layers as join_layers
    from shoal.kernels.adjacency import Adjacency as Adjacency
    from shoal.kernels.spmm import spmm as spmm
    from shoal.models.conv import CONVS as CONVS
    from shoal.models.conv import Conv as Conv
    from shoal.models.gat import GATConv as GATConv
    from shoal.models.gcn import GCNConv as GCNConv
    from shoal.models.gnn import GNN as GNN
    from shoal.models.hops import stack_hops as stack_hops
    from shoal.models.mixhop import MixHopConv as MixHopConv
    from shoal.models.module import MODELS as MODELS
    from shoal.models.sage import SAGEConv as SAGEConv
    from shoal.partitioning.part import Part as Part
    from shoal.partitioning.partition import Partition as Partition
    from shoal.partitioning.partition import partition_graph as partition_graph
    from shoal.partitioning.stored import open_part as open_part
    from shoal.partitioning.stored import store_parts as store_parts
    from shoal.partitioning.work import PARTITION_METHODS as PARTITION_METHODS
    from shoal.runs.estimator import NodeClassifier as NodeClassifier
    from shoal.runs.estimator import NodeRegressor as NodeRegressor
    from shoal.runs.trained import TrainedRun as TrainedRun
    from shoal.runs.trained import load_run as load_run
    from shoal.sampling.adaptive import AdaptiveSampler as AdaptiveSampler
    from shoal.sampling.base import SAMPLERS as SAMPLERS
    from shoal.sampling.base import Sampler as Sampler
    from shoal.sampling.cluster import ClusterSampler as ClusterSampler
    from shoal.sampling.dealt import DealtSampler as DealtSampler
    from shoal.sampling.edge import EdgeSampler as EdgeSampler
    from shoal.sampling.fastgcn import FastGCNSampler as FastGCNSampler
    from shoal.sampling.feature_cache import FeatureCaching as FeatureCaching
    from shoal.sampling.forest_fire import ForestFireSampler as ForestFireSampler
    from shoal.sampling.frontier import FrontierSampler as FrontierSampler
    from shoal.sampling.full import FullSampler as FullSampler
    from shoal.sampling.labor import LaborSampler as LaborSampler
    from shoal.sampling.ladies import LadiesSampler as LadiesSampler
    from shoal.sampling.loader import SubgraphLoader as SubgraphLoader
    from shoal.sampling.multi_walk import MultiRandomWalkSampler as MultiRandomWalkSampler
    from shoal.sampling.neighbor import NeighborSampler as NeighborSampler
    from shoal.sampling.node import NodeSampler as NodeSampler
    from shoal.sampling.prefetch import Prefetcher as Prefetcher
    from shoal.sampling.rows import RowSampler as RowSampler
    from shoal.sampling.shard import ShardedSampler as ShardedSampler
    from shoal.sampling.walk import RandomWalkSampler as RandomWalkSampler
    from shoal.store import open_graph as open_graph
    from shoal.store import save_graph as save_graph
    from shoal.training.callback import CALLBACKS as CALLBACKS
    from shoal.training.callback import Callback as Callback
    from shoal.training.loss import LOSSES as LOSSES
    from shoal.training.loss import make_loss as make_loss
    from shoal.training.metrics import METRICS as METRICS
    from shoal.training.smoothing import correct_and_smooth as correct_and_smooth
    from shoal.training.smoothing import propagate_labels as propagate_labels
    from shoal.training.smoothing_choice import choose_smoothing as choose_smoothing
    from shoal.training.smoothing_choice import smooth_predictions as smooth_predictions
    from shoal.training.trainer import Trainer as Trainer

_HOMES = {
    "ProgressBar": "shoal.commands.progress",
    "load": "shoal.datasets",
    "ShoalError": "shoal.errors",
    "Graph": "shoal.graph",
    "Adjacency": "shoal.kernels.adjacency",
    "spmm": "shoal.kernels.spmm",
    "GNN": "shoal.models.gnn",
    "GATConv": "shoal.models.gat",
    "GCNConv": "shoal.models.gcn",
    "MixHopConv": "shoal.models.mixhop",
    "SAGEConv": "shoal.models.sage",
    "Part": "shoal.partitioning.part",
    "open_part": "shoal.partitioning.stored",
    "store_parts": "shoal.partitioning.stored",
    "Partition": "shoal.partitioning.partition",
    "partition_graph": "shoal.partitioning.partition",
    "Batch": "shoal.batch",
    "join_layers": "shoal.joining",
    "ClusterLoader": "shoal.interop.loaders",
    "NeighborLoader": "shoal.interop.loaders",
    "open_stores": "shoal.interop.stores",
    "NodeClassifier": "shoal.runs.estimator",
    "NodeRegressor": "shoal.runs.estimator",
    "load_run": "shoal.runs.trained",
    "TrainedRun": "shoal.runs.trained",
    "Sampler": "shoal.sampling.base",
    "FeatureCaching": "shoal.sampling.feature_cache",
    "FrontierSampler": "shoal.sampling.frontier",
    "FullSampler": "shoal.sampling.full",
    "RandomWalkSampler": "shoal.sampling.walk",
    "EdgeSampler": "shoal.sampling.edge",
    "ForestFireSampler": "shoal.sampling.forest_fire",
    "MultiRandomWalkSampler": "shoal.sampling.multi_walk",
    "NodeSampler": "shoal.sampling.node",
    "ClusterSampler": "shoal.sampling.cluster",
    "FastGCNSampler": "shoal.sampling.fastgcn",
    "AdaptiveSampler": "shoal.sampling.adaptive",
    "LaborSampler": "shoal.sampling.labor",
    "LadiesSampler": "shoal.sampling.ladies",
    "NeighborSampler": "shoal.sampling.neighbor",
    "Prefetcher": "shoal.sampling.prefetch",
    "SubgraphLoader": "shoal.sampling.loader",
    "ShardedSampler": "shoal.sampling.shard",
    "DealtSampler": "shoal.sampling.dealt",
    "open_graph": "shoal.store",
    "save_graph": "shoal.store",
    "SAMPLERS": "shoal.sampling.base",
    "CONVS": "shoal.models.conv",
    "Conv": "shoal.models.conv",
    "MODELS": "shoal.models.module",
    "stack_hops": "shoal.models.hops",
    "RowSampler": "shoal.sampling.rows",
    "PARTITION_METHODS": "shoal.partitioning.work",
    "FORMATS": "shoal.datasets.importers",
    "METRICS": "shoal.training.metrics",
    "LOSSES": "shoal.training.loss",
    "make_loss": "shoal.training.loss",
    "CALLBACKS": "shoal.training.callback",
    "Callback": "shoal.training.callback",
    "EXCHANGES": "shoal.distributed.exchange",
    "TRANSPORTS": "shoal.distributed.transport",
    "Trainer": "shoal.training.trainer",
    "correct_and_smooth": "shoal.training.smoothing",
    "propagate_labels": "shoal.training.smoothing",
    "choose_smoothing": "shoal.training.smoothing_choice",
    "smooth_predictions": "shoal.training.smoothing_choice",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
