"""Measures of samples agree with NetworkX."""

import networkx as nx
import numpy as np
import pytest

import shoal
from shoal.analysis.subgraphs import measure_graph, measure_samples
from small_graphs import make_graph


@pytest.mark.parametrize(
    "reference", [nx.powerlaw_cluster_graph(400, 4, 0.6, seed=1), nx.barbell_graph(20, 10), nx.path_graph(5)]
)
def test_measures_agree_with_networkx(reference):
    """Clustering is estimated from 200,000 pairs: within 5 standard errors."""
    character = measure_graph(shoal.Graph.from_networkx(reference))
    local = [c for v, c in nx.clustering(reference).items() if reference.degree[v] >= 2]
    exact = np.mean(local)
    assert character.clustering == pytest.approx(exact, abs=5 * np.sqrt(0.25 / 200_000))
    assert character.assortativity == pytest.approx(nx.degree_assortativity_coefficient(reference))
    assert sorted(character.degrees) == sorted(d for _, d in reference.degree)


def test_regular_and_empty_graphs_have_no_assortativity():
    assert measure_graph(make_graph([(0, 1), (1, 2), (2, 0)], 3)).assortativity == 0
    empty = measure_graph(make_graph([], 3))
    assert (empty.assortativity, empty.clustering) == (0, 0)


def test_coverage_is_the_share_of_nodes_in_any_sample():
    graph = make_graph([(0, 1), (2, 3)], 8)
    character = measure_samples(shoal.EdgeSampler(graph, num_edges=50), 2)
    assert character.coverage == 0.5
    assert [one.num_nodes for one in character.samples] == [4, 4]
