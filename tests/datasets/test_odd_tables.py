"""Random node tables of odd cells and Arrow types: read, and encoded alike again, or refused with a sentence."""

import datetime
import decimal
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

CELLS = [
    *("", "NA", "1", "2.5", "1,5", "1.234", "1,234", "1.234,56", "-", "yes", "no", "abc", "a b c d", "x|y"),
    *(
        "2020-01-01",
        "31.12.2020",
        "1/2/2020",
        "13/2/2020",
        "2020-13-45",
        "9999-12-31",
        "2020-01-01T25:61:61Z",
    ),
    *("inf", "1e400", "-0", "007", "ä ö", "٣", "true", "None", "1e-320", " ", "'", "\u202f", "9" * 20),
]
VALUES = {
    pa.int8(): [1, 2],
    pa.uint64(): [2**63],
    pa.float16(): [np.float16(1.5), np.float16("nan")],
    pa.float64(): [0.5, float("nan"), 2.0],
    pa.bool_(): [True, False],
    pa.string_view(): CELLS,
    pa.dictionary(pa.int8(), pa.string()): CELLS,
    pa.binary(): [b"\xff"],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(9999, 1, 1)],
    pa.timestamp("s", tz="Asia/Tokyo"): [datetime.datetime(2000, 1, 1)],
    pa.time32("s"): [datetime.time(1)],
    pa.decimal128(20, 3): [decimal.Decimal("1.5")],
    pa.null(): [None],
    pa.list_(pa.float32()): [[1.0, 2.0]],
    pa.struct([("a", pa.int8())]): [{"a": 1}],
}
NAMES = ("id", "f", "g", "label", "class", "split")


def write_table(draw, folder, rows):
    names = ["id", *draw.sample(NAMES[1:], draw.randint(1, 4))]
    if draw.random() < 0.5:
        pools = {name: draw.sample(CELLS, draw.randint(1, 4)) for name in names} | {
            "split": ["train", "val", ""]
        }
        lines = [
            ",".join([str(i), *(f'"{draw.choice(pools[name])}"' for name in names[1:])]) for i in range(rows)
        ]
        (folder / "nodes.csv").write_text("\n".join([",".join(names), *lines, ""]), encoding="utf-8")
        return
    columns = {"id": pa.array(range(rows))}
    for name in names[1:]:
        kind = draw.choice([*VALUES])
        values = [None if draw.random() < 0.2 else draw.choice(VALUES[kind]) for _ in range(rows)]
        columns[name] = pa.array(values, kind)
    pq.write_table(pa.table(columns), folder / "nodes.parquet")


@pytest.mark.parametrize("seed", range(4))
def test_odd_tables_are_read_and_encoded_alike_again_or_refused(tmp_path, seed):
    draw, read = random.Random(seed), 0
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_table(draw, folder, draw.choice([2, 5, 30]))
        (folder / "edges.csv").write_text("source,target\n0,1\n1,1\n")
        options = {
            "categories": "f",
            "decimal": "comma",
            "day_first": True,
            "standardize": True,
            "exclude": "g",
        }
        chosen = {key: value for key, value in options.items() if draw.random() < 0.15}
        try:
            graph = import_graph(folder, **chosen)
        except ShoalError:
            continue
        read += 1
        if graph.encoding is not None:
            assert np.array_equal(import_graph(folder, like=graph).x, graph.x)
    assert read >= 3
