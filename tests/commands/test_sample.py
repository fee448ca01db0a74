"""`shoal sample`: sizes, measures and a plot; refusals in one sentence."""

from pathlib import Path

from shoal.commands.sample import parse_options
from shoal.sampling.base import SAMPLERS, sampler_settings


def test_samples_are_measured_beside_the_full_graph(shoal, tmp_path: Path) -> None:
    options = ["--set", "budget=300", "--set", "frontier=50", "--samples", 3]
    run = shoal("sample", "digits", "--stats", "--plot", tmp_path / "degrees.png", *options)
    assert run.code == 0, run.stderr
    for words in (
        "300.0",
        "mean degree",
        "clustering coefficient",
        "assortativity",
        "nodes in any of 3 samples",
    ):
        assert words in run.stdout
    assert (tmp_path / "degrees.png").read_bytes().startswith(b"\x89PNG")


def test_layered_samplers_show_how_nodes_multiply(shoal) -> None:
    run = shoal("sample", "digits", "--sampler", "neighbor", "--set", "batch_size=50", "--samples", 2)
    assert run.code == 0, run.stderr
    assert "read by layer 2" in run.stdout


def test_mistakes_are_refused_in_one_sentence(shoal) -> None:
    assert "did you mean 'frontier'" in shoal("sample", "digits", "--sampler", "fronteer").refusal()
    assert "did you mean 'budget'" in shoal("sample", "digits", "--set", "budgt=3").refusal()
    assert "expected key=value" in shoal("sample", "digits", "--set", "budget").refusal()
    assert "give both" in shoal("sample", "digits", "--plot", "a.png").refusal()
    assert "unknown sampler" in shoal("sample", "nowhere", "--sampler", "fronteer").refusal()


def test_a_plot_that_cannot_be_written_is_refused_before_the_graph_is_looked_for(shoal) -> None:
    for name, message in {"a.pdf": "ends in .png", "none/a.png": "make the folder first"}.items():
        assert message in shoal("sample", "nowhere", "--stats", "--plot", name).refusal()


def test_a_plot_is_written_whole_under_any_name(shoal, tmp_path: Path) -> None:
    (tmp_path / "g[").mkdir()
    options = ["--set", "budget=300", "--set", "frontier=50", "--samples", 2]
    run = shoal("sample", "digits", "--stats", "--plot", "g[/x].png", *options)
    assert run.code == 0, run.stderr
    assert "plot: g[/x].png" in run.stdout
    assert [path.name for path in (tmp_path / "g[").iterdir()] == ["x].png"]


def test_settings_may_be_written_as_train_writes_them():
    assert parse_options(("sampler.budget=5", "frontier=3")) == {"budget": 5, "frontier": 3}


def test_stats_of_layered_samplers_say_of_which_subgraph(shoal, tmp_path):
    line = ("sample", "digits", "--sampler", "neighbor", "--stats", "--plot", tmp_path / "n.png")
    run = shoal(*line, "--samples", 2)
    assert run.code == 0, run.stderr
    assert "draws a bipartite block for every layer" in " ".join(run.stdout.split())


def test_help_lists_every_sampler_with_its_settings(shoal) -> None:
    said = shoal("sample", "--help").stdout
    for name in SAMPLERS:
        assert f"\n  {name} " in said
        for setting in sampler_settings(name):
            assert f"{setting}=" in said


def test_settings_out_of_range_are_refused_before_the_graph_is_looked_for(shoal) -> None:
    assert "budget is 0" in shoal("sample", "nowhere", "--set", "budget=0").refusal()
    assert "'seed'" in shoal("sample", "nowhere", "--set", "seed=3").refusal()
    assert "did you mean 'inductive'" in shoal("sample", "nowhere", "--set", "setting=induct").refusal()
