"""The registry: entries are complete and consistent, addresses well formed, mirrors honoured."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from shoal.datasets import places
from shoal.datasets.dataset import Dataset
from shoal.datasets.importers import FORMATS
from shoal.datasets.places import resolve_address
from shoal.datasets.registry import find_dataset, registered
from shoal.errors import ShoalError

# VLDB'22 table 1: vertices, and edges as printed there (undirected graphs are counted in both directions).
TABLE_1 = {
    "amazon0601": (403_394, 3_387_388),
    "cit-Patents": (3_774_768, 16_518_948),
    "coPapersDBLP": (540_486, 30_491_458),
    "com-Amazon": (334_863, 1_851_744),
    "com-Youtube": (1_134_890, 5_975_248),
    "flickr-contacts": (820_878, 9_837_214),
    "roadNet-CA": (1_971_281, 5_533_214),
    "soc-Slashdot0902": (82_168, 948_464),
    "cora": (2_708, 10_556),
    "ogbn-papers100M": (111_059_956, 1_615_685_872),
}


@pytest.mark.parametrize("dataset", registered().values(), ids=lambda dataset: dataset.name)
def test_entry_is_complete(dataset: Dataset) -> None:
    assert dataset.title
    assert dataset.licence
    assert dataset.reference
    assert dataset.page.startswith("https://")
    assert dataset.num_nodes > 0
    assert dataset.num_edges > 0
    assert (dataset.num_classes > 0) == (dataset.split is not None)
    if dataset.score:
        assert 0 < dataset.score.value < 1
        assert dataset.score.source
    for file in dataset.files:
        address = urlsplit(file.url)
        assert address.scheme == "https"
        assert address.netloc
        assert "/" not in file.name
    assert len({file.name for file in dataset.files}) == len(dataset.files)


def test_sizes_are_those_of_the_papers_table() -> None:
    for name, (vertices, edges) in TABLE_1.items():
        dataset = registered()[name]
        assert dataset.num_nodes == vertices
        assert dataset.num_edges * (1 if dataset.directed else 2) == edges


def test_every_format_is_one_that_is_imported() -> None:
    assert {dataset.format for dataset in registered().values()} <= set(FORMATS)


def test_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ShoalError, match=r"unknown dataset 'ogbn-arxv': did you mean 'ogbn-arxiv'\?"):
        find_dataset("ogbn-arxv")


def test_graphs_without_an_address_are_by_hand() -> None:
    assert [name for name, dataset in registered().items() if dataset.by_hand] == ["ppi", "ppi-large"]
    assert find_dataset("ppi").import_line == "shoal data import FOLDER -o ppi --format graphsaint"


def test_mirror_replaces_scheme_and_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://drive.usercontent.google.com/download?id=a_b&confirm=t"
    monkeypatch.delenv("SHOAL_MIRROR", raising=False)
    assert resolve_address(url) == url
    monkeypatch.setenv("SHOAL_MIRROR", "http://127.0.0.1:8000")
    assert resolve_address(url) == "http://127.0.0.1:8000/download?id=a_b&confirm=t"
    monkeypatch.setenv("SHOAL_MIRROR", "https://mirror.local/graphs/")
    assert resolve_address("https://host/MM/a.tar.gz") == "https://mirror.local/graphs/MM/a.tar.gz"
    monkeypatch.setenv("SHOAL_MIRROR", "/srv/mirror")
    with pytest.raises(ShoalError, match="SHOAL_MIRROR is '/srv/mirror': expected an address"):
        resolve_address(url)


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("SHOAL_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert str(places.home_folder()) == "/home/someone/.cache/shoal"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert str(places.home_folder()) == "/var/cache/me/shoal"
    monkeypatch.setenv("SHOAL_HOME", "~/graphs")
    assert str(places.home_folder()) == "/home/someone/graphs"


def test_stored_graphs_are_recognised_by_the_same_file_as_in_the_store() -> None:
    from shoal import store

    assert places.META == store.META
