"""A batch whose drawing is interrupted leaves nothing behind that could change later ones."""

import pytest

import shoal
from shoal.sampling import frontier, layered, neighbor
from shoal.sampling.registry import make_sampler


@pytest.mark.parametrize(
    ("name", "options", "module", "kernel"),
    [
        ("frontier", {"budget": 300, "frontier": 50}, frontier, "take_marked"),
        ("neighbor", {"fanouts": (5, 5), "batch_size": 50}, neighbor, "_draw_neighbours"),
        ("ladies", {"layer_size": 100, "batch_size": 50}, layered, "_keep_entries"),
        ("fastgcn", {"layer_size": 100, "batch_size": 50}, layered, "_keep_entries"),
    ],
)
def test_a_draw_after_an_interrupted_one_is_the_same_as_ever(monkeypatch, name, options, module, kernel):
    graph = shoal.load("blocks", num_nodes=2000)
    sampler, fresh = make_sampler(name, graph, **options), make_sampler(name, graph, **options)
    expected = fresh.sample(3).nodes
    original = getattr(module, kernel)

    def interrupted(*args):
        original(*args)
        raise KeyboardInterrupt

    if kernel == "take_marked":  # Ctrl-C arrives before the marks are cleared

        def interrupted(*args):
            raise KeyboardInterrupt

    monkeypatch.setattr(module, kernel, interrupted)
    with pytest.raises(KeyboardInterrupt):
        sampler.sample(2)
    monkeypatch.undo()
    assert (sampler.sample(3).nodes == expected).all()
