"""What ranks with parts predict leaves as one table, with the ids and class names of the run's data."""

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq

import shoal
from message_ranks import train_and_write


def test_ranks_with_parts_write_a_table_with_ids_and_class_names(ranks, tmp_path):
    generator = np.random.default_rng(0)
    ids = [f"n{7 * node % 60:02}" for node in range(60)]
    ends = [f"{ids[a]},{ids[b]}" for a, b in generator.integers(0, 60, (200, 2))]
    rows = [
        f"{one},{('cat', 'dog')[node % 2]},{node % 2 + generator.normal():.3f}"
        for node, one in enumerate(ids)
    ]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x", *rows]) + "\n")
    ranks("gloo", 2).call(
        train_and_write, str(tmp_path / "edges.csv"), str(tmp_path / "nodes.csv"), str(tmp_path)
    )
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    classes = np.load(tmp_path / "y.npy")
    assert table["node"] == list(range(60))
    assert table["id"] == ids
    assert table["class"] == classes.tolist()
    assert table["label"] == [("cat", "dog")[one] for one in classes]
    assert sorted(path.name for path in tmp_path.iterdir() if "parquet" in path.name) == ["y.parquet"]
    proba = np.load(tmp_path / "p.npy")
    np.testing.assert_allclose(proba, shoal.load_run(tmp_path / "run").predict_proba(), atol=1e-6)
    assert proba.argmax(1).tolist() == classes.tolist()
    probabilities = csv.read_csv(tmp_path / "p.csv").to_pydict()
    assert probabilities["id"] == ids
    assert probabilities["label"] == table["label"]
    np.testing.assert_allclose(probabilities["probability_dog"], proba[:, 1], rtol=1e-6)
