"""The generator `digits`: real handwriting, joined to its nearest neighbours.

`digits.npz` holds the 1,797 images of 8 × 8 pixels (values 0 to 16) and labels of the test set of "Optical
Recognition of Handwritten Digits", UCI Machine Learning Repository, doi 10.24432/C50P49, licence CC BY 4.0.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

from shoal.datasets.generators import GENERATORS
from shoal.settings import Range, Seed, check_settings

if TYPE_CHECKING:
    import numpy as np

    from shoal.graph import Graph

NUM_IMAGES = 1797


@GENERATORS.named("digits")
@check_settings
def digits(
    neighbors: Annotated[
        int, Range(1, NUM_IMAGES - 1), "nearest neighbours that each image is joined to, by pixels"
    ] = 10,
    train: Annotated[
        float,
        Range(1 / NUM_IMAGES, 0.8),
        "share of training nodes; a fifth is for validation, the rest for test",
    ] = 0.2,
    seed: Seed = 0,
) -> Graph:
    """1,797 handwritten digits (UCI, CC BY 4.0), joined to their nearest neighbours; ships with Shoal.

    64 pixels each, 10 classes. Distances are Euclidean, ties are broken by number. Edges are undirected, so most nodes
    have a few more neighbours than `neighbors`. With the default `train`, edges more than halve the error of a network
    that sees pixels alone (4.6 to 2.0 %); with most labels given, both have an accuracy near 98 %.
    """  # fmt: skip
    import numpy as np

    from shoal.graph import Graph
    from shoal.split import draw_split

    with (files("shoal.datasets") / "digits.npz").open("rb") as file, np.load(file) as stored:
        pixels, labels = stored["pixels"], stored["labels"]
    num_nodes = len(labels)
    nearest = _find_nearest(pixels.astype(np.float64), neighbors)
    targets = np.repeat(np.arange(num_nodes), neighbors)
    graph = Graph.from_edge_index(
        np.stack([nearest.ravel(), targets]),
        num_nodes,
        directed=False,
        x=pixels.astype(np.float32) / 16,
        y=labels,
        num_classes=10,
        name="digits",
        **draw_split(np.arange(num_nodes), num_nodes, train=train, seed=seed),
    )
    graph.notices = ()  # duplicate edges, of two images that are each other's neighbour, are expected
    return graph


def _find_nearest(points: np.ndarray, count: int) -> np.ndarray:
    """The `count` nearest other rows of each row of whole numbers, `(num_rows, count)`, in no particular order.

    Distances are exact and ties go to the lower number, so the neighbours are the same on every machine.
    """
    import numpy as np

    n = len(points)
    norms = (points**2).sum(axis=1)
    distance = (norms[:, None] + norms - 2 * points @ points.T).astype(np.int64)
    rank = distance * n + np.arange(n)
    np.fill_diagonal(rank, np.iinfo(np.int64).max)
    return np.argpartition(rank, count - 1, axis=1)[:, :count]
