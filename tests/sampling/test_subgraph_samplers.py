"""Edge, node, multiple-walk and forest-fire samplers draw the laws they state, on every kind of graph."""

import inspect
import itertools
from collections import Counter

import numpy as np
import pytest

import shoal
from sampler_laws import SIGNIFICANCE, chi_square_p, count_sets
from shoal.sampling.base import LOADER_ARGUMENTS, SAMPLERS, make_sampler, sampler_settings
from shoal.settings import list_settings
from small_graphs import make_graph, make_labelled, make_lopsided

NUM_DRAWS = 20_000
SMALL = {
    "frontier": {"budget": 60, "frontier": 10},
    "random-walk": {"roots": 20, "depth": 2},
    "edge": {"num_edges": 30},
    "node": {"budget": 60},
    "multi-random-walk": {"budget": 60, "walkers": 10},
    "forest-fire": {"budget": 60},
}


def union_law(parts, num_draws):
    """P(union of num_draws independent draws) of small sets with given probabilities."""
    law = Counter({frozenset(): 1.0})
    for _ in range(num_draws):
        after = Counter()
        for (seen, p), (part, q) in itertools.product(law.items(), parts.items()):
            after[seen | part] += p * q
        law = after
    return law


def test_edges_are_drawn_by_the_inverse_degrees_of_their_ends():
    graph = make_lopsided()
    degree = graph.degree
    edges = {(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (4, 5)}
    weights = {frozenset(e): 1 / degree[e[0]] + 1 / degree[e[1]] for e in edges}
    law = union_law({e: w / sum(weights.values()) for e, w in weights.items()}, 2)
    counts = count_sets(shoal.EdgeSampler(graph, num_edges=2, seed=1), NUM_DRAWS)
    assert chi_square_p(counts, law) > SIGNIFICANCE


def test_arcs_are_drawn_by_the_inverse_degrees_of_their_ends():
    arcs = [(0, 1), (0, 2), (3, 0), (4, 3)]
    graph = make_graph(arcs, 5, directed=True)
    degree = np.bincount(np.array(arcs).ravel(), minlength=5)
    weights = {frozenset(e): 1 / degree[e[0]] + 1 / degree[e[1]] for e in arcs}
    law = union_law({e: w / sum(weights.values()) for e, w in weights.items()}, 2)
    counts = count_sets(shoal.EdgeSampler(graph, num_edges=2, seed=1), NUM_DRAWS)
    assert chi_square_p(counts, law) > SIGNIFICANCE


@pytest.mark.parametrize("directed", [False, True])
def test_nodes_are_drawn_by_the_column_norms_of_the_gcn_matrix(directed):
    graph = make_graph([(0, 1), (0, 2), (1, 2), (0, 3), (4, 4)], 6, directed=directed)
    dense = np.zeros((6, 6))
    dense[np.repeat(np.arange(6), graph.degree), graph.indices] = 1
    np.fill_diagonal(dense, 1)
    scale = 1 / np.sqrt(graph.degree + 1)
    weights = ((scale[:, None] * dense * scale) ** 2).sum(0)
    law = union_law({frozenset([v]): w / weights.sum() for v, w in enumerate(weights)}, 3)
    counts = count_sets(shoal.NodeSampler(graph, budget=3, seed=2), NUM_DRAWS)
    assert chi_square_p(counts, law) > SIGNIFICANCE


def test_walkers_take_turns():
    """Two walkers on a path, budget 3: enumerate the turns until a third node is seen."""
    graph = make_graph([(0, 1), (1, 2), (2, 3)], 4)
    law = Counter()

    def follow(walkers, turn, seen, p):
        if len(seen) == 3 or p < 1e-9:
            law[seen] += p
            return
        row = graph.indices[graph.indptr[walkers[turn]] : graph.indptr[walkers[turn] + 1]]
        for v in row.tolist():
            moved = (v, walkers[1]) if turn == 0 else (walkers[0], v)
            follow(moved, 1 - turn, seen | {v}, p / len(row))

    for pair in itertools.permutations(range(4), 2):
        follow(pair, 0, frozenset(pair), 1 / 12)
    law = Counter({seen: p for seen, p in law.items() if len(seen) == 3})
    counts = count_sets(shoal.MultiRandomWalkSampler(graph, budget=3, walkers=2, seed=3), NUM_DRAWS)
    assert chi_square_p(counts, law) > SIGNIFICANCE


def burn_by_definition(graph, budget, burning, generator):
    burnt, queue = set(), []
    while len(burnt) < budget:
        if not queue:
            queue = [int(generator.choice([v for v in range(graph.num_nodes) if v not in burnt]))]
            burnt.add(queue[0])
            continue
        u = queue.pop(0)
        row = [v for v in graph.indices[graph.indptr[u] : graph.indptr[u + 1]].tolist() if v not in burnt]
        spread = min(generator.geometric(1 - burning) - 1, len(row), budget - len(burnt))
        caught = [int(v) for v in generator.permutation(row)[:spread]]
        burnt.update(caught)
        queue.extend(caught)
    return frozenset(burnt)


@pytest.mark.parametrize("burning", [0.3, 0.9])
def test_fires_spread_as_defined(burning):
    graph, generator = make_lopsided(), np.random.default_rng(0)
    theirs = Counter(burn_by_definition(graph, 3, burning, generator) for _ in range(NUM_DRAWS))
    ours = count_sets(shoal.ForestFireSampler(graph, budget=3, burning=burning, seed=4), NUM_DRAWS)
    assert set(ours) == set(theirs)
    both = Counter({outcome: (ours[outcome] + theirs[outcome]) / (2 * NUM_DRAWS) for outcome in ours})
    joint = {("ours", o): p / 2 for o, p in both.items()} | {("theirs", o): p / 2 for o, p in both.items()}
    counts = Counter(
        {("ours", o): c for o, c in ours.items()} | {("theirs", o): c for o, c in theirs.items()}
    )
    assert chi_square_p(counts, joint) > SIGNIFICANCE


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("directed", [False, True])
def test_batches_depend_on_seed_and_number_only(name, directed):
    graph = make_labelled(directed=directed)
    first, again = (make_sampler(name, graph, seed=5, **SMALL[name]) for _ in range(2))
    drawn = {k: first.sample(k).n_id for k in (3, 0)}
    assert again.sample(0).n_id.equal(drawn[0])
    assert again.sample(3).n_id.equal(drawn[3])
    assert not drawn[0].equal(drawn[3])


@pytest.mark.parametrize("name", SMALL)
def test_inductive_batches_hold_training_nodes_only(name):
    graph = make_labelled()
    batch = make_sampler(name, graph, setting="inductive", **SMALL[name]).sample(1)
    assert graph.train_mask[batch.n_id.numpy()].all()


@pytest.mark.parametrize("name", SMALL)
def test_zero_and_negative_settings_are_refused(name):
    for option in SMALL[name]:
        for bad in (0, -3, 2.5):
            with pytest.raises(shoal.ShoalError, match=option):
                make_sampler(name, make_lopsided(), **{option: bad})


@pytest.mark.parametrize("name", sorted(set(SMALL) - {"node"}))
def test_graphs_without_edges_are_refused(name):
    empty = shoal.Graph.from_edge_index(np.zeros((2, 0), np.int64), 100)
    with pytest.raises(shoal.ShoalError, match="no edges"):
        make_sampler(name, empty, **SMALL[name])


@pytest.mark.parametrize("name", sorted(set(SMALL) - {"node"}))
def test_training_nodes_that_are_isolated_among_themselves_are_refused(name):
    """Every edge leads from a training to a test node: inductive training would see no edge at all."""
    train = np.arange(100) < 50
    graph = make_graph([(i, i + 50) for i in range(50)], 100, train_mask=train, test_mask=~train)
    with pytest.raises(shoal.ShoalError, match="training graph of 'graph' has no edges"):
        make_sampler(name, graph, setting="inductive", **SMALL[name])


@pytest.mark.parametrize("name", ["node", "multi-random-walk", "forest-fire", "frontier"])
def test_budgets_beyond_the_graph_are_clipped_with_a_notice(name):
    sampler = make_sampler(name, make_lopsided(), budget=9000)
    assert len(sampler.draw_nodes(0)) <= 6
    assert "budget 9,000" in sampler.notices[0]


@pytest.mark.parametrize("name", SMALL)
def test_sinks_and_isolated_nodes_do_no_harm(name):
    chain = make_graph([(i + 1, i) for i in range(150)], 200, directed=True)
    sampler = make_sampler(name, chain, **SMALL[name])
    for k in range(20):
        nodes = sampler.draw_nodes(k)
        assert len(nodes) >= 1
        assert (np.diff(nodes) > 0).all()


def test_every_sampler_is_registered_under_its_name():
    assert set(SMALL) | {"full"} <= set(SAMPLERS)


WRONG = {"a whole number": ["x", None, 2.5, True, 0, -1, 2**70], "a number": ["x", None, True, -1, 1e9]}


@pytest.mark.parametrize("name", SAMPLERS)
def test_values_of_the_wrong_type_or_size_are_refused_in_a_sentence(name):
    graph = make_labelled()
    for setting in list_settings(SAMPLERS[name]).values():
        for value in WRONG.get(setting.type_name, [1.5]):
            if (value is None and setting.optional) or (value == 0 and setting.name == "seed"):
                continue
            with pytest.raises(shoal.ShoalError, match=f"^{setting.name} is .*: expected "):
                SAMPLERS[name](graph, **{setting.name: value})


@pytest.mark.parametrize("fanouts", [[2**70], ["x"], [2.5], [None], [True], "x-1", "", None, {}])
def test_fanouts_of_the_wrong_type_or_size_are_refused_in_a_sentence(fanouts):
    with pytest.raises(shoal.ShoalError, match=r"^fanouts is "):
        shoal.NeighborSampler(make_labelled(), fanouts=fanouts)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_samplers_settings_are_its_constructors_arguments_with_their_meanings(name):
    arguments = set(inspect.signature(SAMPLERS[name]).parameters) - {"graph", *LOADER_ARGUMENTS}
    assert set(list_settings(SAMPLERS[name])) == arguments
    assert set(sampler_settings(name)) == arguments - {"setting", "seed"}
    for setting in list_settings(SAMPLERS[name]).values():
        assert setting.meaning
        assert setting.check(setting.default) == setting.default


def test_a_sampler_that_ranks_cannot_share_names_those_they_can():
    with pytest.raises(shoal.ShoalError, match=r"'neighbor' .* expected one of .*\bnode\b") as refused:
        shoal.NeighborSampler.require_shareable()
    assert "ladies" not in str(refused.value)
    shoal.NodeSampler.require_shareable()


def test_a_setting_that_a_sampler_does_not_have_is_refused_with_the_nearest():
    with pytest.raises(shoal.ShoalError, match="sampler 'node' 'budgt': did you mean 'budget'"):
        make_sampler("node", make_labelled(), budgt=3)
    with pytest.raises(shoal.ShoalError, match="did you mean 'node'"):
        make_sampler("nodes", make_labelled())
