"""Graph.from_pandas: the graph that the same tables give as files, with ids and class names up to the predictions."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import shoal
from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

COUNT = 60


def make_tables(seed=0):
    """Payments and customers: string ids, missing numbers, categories, dates, text and a label with gaps."""
    rng = np.random.default_rng(seed)
    ids = np.array([f"c{i:03d}" for i in range(COUNT)])
    customers = pd.DataFrame(
        {
            "status": np.where(np.arange(COUNT) % 3 == 0, "fraud", "fine").astype(object),
            "customer": ids,
            "age": np.where(rng.random(COUNT) < 0.1, np.nan, rng.integers(18, 90, COUNT)),
            "city": rng.choice(["Oslo", "Rome", "Bern"], COUNT),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, COUNT), unit="D"),
        }
    )
    customers.loc[4, "status"] = None
    payments = pd.DataFrame(
        {"amount": rng.random(200) + 1, "payee": rng.choice(ids, 200), "payer": rng.choice(ids, 200)}
    )
    return payments, customers


NAMED = {"source": "payer", "target": "payee", "id": "customer"}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_in_memory_and_in_files_give_the_same_graph(tmp_path, ending):
    payments, customers = make_tables()
    for stem, frame in (("edges", payments), ("nodes", customers)):
        path = tmp_path / f"{stem}.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path, index=False)
    stored = import_graph(tmp_path, labels="status", weight="amount", exclude="city", **NAMED)
    graph = shoal.Graph.from_pandas(
        payments, customers, label="status", weight="amount", exclude=["city"], **NAMED
    )
    assert graph.checksum == stored.checksum
    np.testing.assert_array_equal(graph.x, stored.x)
    np.testing.assert_array_equal(graph.y, stored.y)
    np.testing.assert_allclose(graph.edge_weight, stored.edge_weight, rtol=1e-6)
    assert list(graph.node_ids) == list(stored.node_ids) == list(customers.customer)
    assert graph.class_names == stored.class_names == ("fine", "fraud")
    assert ending == "csv" or graph.encoding == stored.encoding  # text cells have a form of their own
    assert graph.name == "graph"
    assert not any("parquet" in notice for notice in graph.notices)
    assert graph.y[4] == -1


def test_predictions_have_class_names_and_new_tables_are_encoded_alike():
    payments, customers = make_tables()
    graph = shoal.Graph.from_pandas(payments, customers, label="status", **NAMED)
    found = shoal.NodeClassifier("mlp", epochs=1, model__hidden=4).fit(graph, progress=False)
    assert set(found.predict()) <= {"fine", "fraud"}
    payments, customers = make_tables(1)
    new = shoal.Graph.from_pandas(payments, customers, like=graph, source="payer", target="payee")
    assert new.class_names == graph.class_names
    assert new.num_features == graph.num_features
    assert len(found.predict(new)) == COUNT


def test_the_index_is_the_id_if_it_has_a_name_and_arrow_tables_are_taken():
    payments, customers = make_tables()
    graph = shoal.Graph.from_pandas(payments, customers, label="status", **NAMED)
    ends = {"source": "payer", "target": "payee"}
    indexed = shoal.Graph.from_pandas(payments, customers.set_index("customer"), label="status", **ends)
    arrow = [pa.Table.from_pandas(frame, preserve_index=False) for frame in (payments, customers)]
    for other in (indexed, shoal.Graph.from_pandas(*arrow, label="status", **NAMED)):
        assert list(other.node_ids) == list(graph.node_ids)
        np.testing.assert_array_equal(other.x, graph.x)
    filtered = customers[customers.index % 2 == 0]  # its index has no name: no feature
    half = shoal.Graph.from_pandas(payments, filtered, label="status", unknown="drop", **NAMED)
    assert half.num_nodes == COUNT // 2
    assert half.num_features == graph.num_features
    bare = shoal.Graph.from_pandas(payments[["payer", "payee"]], directed=False, name="mine")
    assert (bare.directed, bare.name, bare.num_features) == (False, "mine", 0)


def test_refusals_name_the_table_and_not_a_file():
    payments, customers = make_tables()
    with pytest.raises(ShoalError, match=r"^nodes has no column 'state': did you mean 'status'") as error:
        shoal.Graph.from_pandas(payments, customers, label="state", **NAMED)
    assert "/" not in str(error.value)
    with pytest.raises(
        ShoalError, match=r"^edges: row \d+ names node 'c0\d+' in column 'payer', which nodes lacks"
    ):
        shoal.Graph.from_pandas(payments, customers[:10], **NAMED)
    with pytest.raises(ShoalError, match="unknown setting of from_pandas 'wheight': did you mean 'weight'"):
        shoal.Graph.from_pandas(payments, customers, wheight="amount")
    with pytest.raises(ShoalError, match="edges is a ndarray: expected a DataFrame"):
        shoal.Graph.from_pandas(payments.to_numpy())
    customers["age"] = ["old", *customers["age"][1:]]
    with pytest.raises(
        ShoalError, match=r"nodes cannot be read: .*column age.*: give each column values of one"
    ):
        shoal.Graph.from_pandas(payments, customers, **NAMED)


def test_an_edge_index_of_two_columns_is_to_be_transposed():
    with pytest.raises(ShoalError, match=r"shape \(3, 2\): expected \(2, num_edges\): transpose it"):
        shoal.Graph.from_edge_index(pd.DataFrame({"a": [0, 1, 2], "b": [1, 2, 0]}))
