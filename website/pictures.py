"""python website/pictures.py: draw the SVG files of docs/pictures. A test holds them in step with this file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from svg import Picture

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/pictures"

Points = list[tuple[float, float]]


def scatter(count: int, seed: int) -> tuple[Points, list[list[int]]]:
    """Points in the unit square, and the nearest neighbours of each."""
    numbers = random.Random(seed)
    points: Points = []
    while len(points) < count:
        x, y = numbers.random(), numbers.random()
        if all((x - a) ** 2 + (y - b) ** 2 > 0.006 for a, b in points):
            points.append((x, y))
    neighbours: list[set[int]] = [set() for _ in points]
    for i, (x, y) in enumerate(points):
        nearest = sorted(range(count), key=lambda j: (points[j][0] - x) ** 2 + (points[j][1] - y) ** 2)
        for j in nearest[1:6]:
            neighbours[i].add(j)
            neighbours[j].add(i)
    return points, [sorted(found) for found in neighbours]


def draw_batches() -> Picture:
    picture = Picture(960, 480, "A neighbourhood grows with every layer; a subgraph does not")
    points, neighbours = scatter(90, 4)

    def place(i: int, left: float) -> tuple[float, float]:
        return left + 390 * points[i][0], 88 + 180 * points[i][1]

    def draw_graph(left: float, layer_of: dict[int, int]) -> None:
        kinds = ("orange", "blue", "bluish", "faint")
        for i, found in enumerate(neighbours):
            for j in found:
                if i < j:
                    inside = i in layer_of and j in layer_of
                    picture.line([place(i, left), place(j, left)], "blueline" if inside else "line")
        for i in range(len(points)):
            kind = kinds[layer_of[i]] if i in layer_of else "plain"
            picture.dot(*place(i, left), 6.5 if layer_of.get(i) == 0 else 5, kind)

    centre = sorted(range(len(points)), key=lambda i: (points[i][0] - 0.5) ** 2 + (points[i][1] - 0.5) ** 2)
    layers = {centre[0]: 0, centre[9]: 0}
    for layer in (1, 2, 3):
        for i in [i for i, at in layers.items() if at == layer - 1]:
            for j in neighbours[i]:
                layers.setdefault(j, layer)
    picture.text(30, 38, "Neighbour sampling", "title")
    picture.lines(30, 60, ["Two output nodes, three layers: the batch grows with every layer."], "small")
    draw_graph(40, layers)
    picture.text(510, 38, "Subgraph sampling", "title")
    picture.lines(510, 60, ["Random walks draw nodes; all layers run on one subgraph."], "small")
    numbers, walked = random.Random(3), set()
    for root in (centre[0], centre[30], centre[60]):
        at = root
        for _ in range(9):
            walked.add(at)
            at = numbers.choice(neighbours[at])
    draw_graph(520, dict.fromkeys(walked, 1))

    measured = {
        one["sampler"]: one["depths"]
        for one in json.loads((ROOT / "benchmarks/results/depth.json").read_text())["results"]
    }
    for name, left, kind in (("neighbour", 40, "orange"), ("random walk", 520, "blue")):
        most = 8
        picture.text(left, 306, "Seconds an epoch by number of layers (wordnet30, 2 threads)", "small")
        longest = max(one["seconds"] for one in measured["neighbour"])
        for one in measured[name][:most]:
            x = left + 48 * (one["layers"] - 1)
            height = 96 * one["seconds"] / longest
            picture.parts.append(
                f'<rect class="{kind}" x="{x}" y="{430 - height:.1f}" width="30" height="{height:.1f}" rx="2"/>'
            )
            picture.text(x + 15, 423 - height, f"{one['seconds']:.1f}", "middle small")
            picture.text(x + 15, 447, f"{one['layers']}", "middle small")
        nodes = measured[name]
        first, last = f"{nodes[0]['nodes']:,.0f}", f"{nodes[-1]['nodes']:,.0f}"
        said = f"A batch reads {first} nodes at any depth."
        if first != last:
            said = f"A batch reads {first} nodes with 1 layer, {last} with {nodes[-1]['layers']}."
        picture.text(left, 468, said, "small")
    return picture


def draw_halo() -> Picture:
    picture = Picture(960, 470, "Halo exchange: rows, and covers that send partial sums")
    halves = (
        ("Rows", 30, "Rank 0 sends every row that rank 1 reads: 4 rows.", False),
        ("Covers", 500, "One sum for p, row d as it is: 2 items, the same result.", True),
    )
    for title, left, said, is_cover in halves:
        picture.text(left, 38, title, "title")
        picture.text(left, 60, said, "small")
        picture.box(left, 78, 160, 250, [])
        picture.box(left + 310, 78, 120, 250, [])
        picture.text(left + 80, 316, "rank 0", "middle small")
        picture.text(left + 370, 316, "rank 1", "middle small")
        senders = {name: (left + 40, 110 + 56 * k) for k, name in enumerate("abcd")}
        readers = {name: (left + 370, 122 + 74 * k) for k, name in enumerate("pqr")}
        if is_cover:
            total = left + 122, 166
            for name in "abc":
                x, y = senders[name]
                picture.line([(x + 14, y), (total[0] - 14, total[1])], "orangeline")
            x, y = readers["p"]
            picture.arrow([(total[0] + 14, total[1]), (x - 16, y)])
            picture.dot(*total, 15, "orange")
            picture.text(total[0], total[1] + 5, "Σ", "middle white")
        else:
            for name in "abc":
                x, y = senders[name]
                px, py = readers["p"]
                picture.arrow([(x + 16, y), (px - 16, py)])
        x, y = senders["d"]
        for name in "qr":
            rx, ry = readers[name]
            picture.arrow([(x + 16, y), (rx - 16, ry)])
        for kind, nodes in (("blue", senders), ("green", readers)):
            for name, (x, y) in nodes.items():
                picture.dot(x, y, 15, kind)
                picture.text(x, y + 5, name, "middle white")
    steps = (
        ["1  pack", "rows and sums"],
        ["2  send", "to the ranks that read"],
        ["3  multiply", "local entries"],
        ["4  receive", "halo rows and sums"],
        ["5  add", "halo entries"],
    )
    for number, said in enumerate(steps):
        x = 30 + 183 * number
        picture.box(x, 350, 160, 56, said)
        if number:
            picture.arrow([(x - 23, 378), (x - 2, 378)])
    picture.text(
        30,
        440,
        "Every layer exchanges once forward and once backward. Gradients travel the same way back.",
        "small",
    )
    return picture


def draw_choice() -> Picture:
    """The rule of runs/choose.py and of `shoal plan`."""
    picture = Picture(960, 628, "Which method fits: the rule of shoal plan and shoal train")
    picture.text(30, 38, "Which method fits", "title")
    picture.text(
        30,
        60,
        "The rule of shoal plan. shoal train without a method takes the part for one machine.",
        "small",
    )
    questions = (
        (84, ["Several hosts, and parts fit on them?"]),
        (214, ["Does a step on the whole graph fit in memory?"]),
        (344, ["Would a batch hold half of the nodes, or do", "ten minutes of a core allow 250 full steps?"]),
    )
    for y, said in questions:
        picture.box(60, y, 380, 62, [])
        for k, line in enumerate(said):
            picture.text(250, y + 36 - 9 * (len(said) - 1) + 18 * k, line, "middle")
    picture.box(60, 474, 380, 70, ["--method full", "every step on the whole graph"], "goal")
    picture.box(
        600,
        84,
        320,
        62,
        ["Does one host hold the whole graph,", "and do parts save less than 30 % of its epoch?"],
    )
    picture.box(
        600,
        196,
        320,
        62,
        ["shoal partition --parts N", "then torchrun … train --parts on every host"],
        "goal",
    )
    picture.box(600, 344, 320, 70, ["--method sampled", "subgraph batches, by random walks"], "goal")
    picture.box(600, 474, 320, 70, ["--method swapped", "full batch by parts, the rest in files"], "goal")
    picture.arrow([(250, 146), (250, 214)], "no")
    picture.arrow([(250, 276), (250, 344)], "yes")
    picture.arrow([(250, 406), (250, 474)], "yes")
    picture.arrow([(440, 115), (600, 115)])
    picture.text(512, 106, "yes", "small")
    picture.arrow([(760, 146), (760, 196)], "no")
    picture.arrow([(600, 138), (470, 138), (470, 236), (440, 236)])
    picture.text(482, 160, "yes", "small")
    picture.arrow([(440, 256), (540, 256), (540, 362), (600, 362)])
    picture.text(548, 300, "no: do batches fit?", "small")
    picture.arrow([(440, 382), (600, 382)])
    picture.text(478, 400, "no", "small")
    picture.arrow([(760, 414), (760, 474)], "batches do not fit either")
    picture.lines(
        30,
        572,
        [
            "Low degree and two layers: also try --sampler neighbor, which can reach a score sooner.",
            "No edges in a step: --model sign. Slow links: covers are on. Measure before you add --boundary-rate 0.1,",
            "which turns covers off, or partition.messages=int8, which was slower than covers at 1 Gbit/s.",
        ],
        "small",
    )
    return picture


def draw_architecture() -> Picture:
    picture = Picture(960, 500, "Architecture: from files to a trained model")
    picture.text(30, 38, "Architecture", "title")
    picture.text(
        30,
        60,
        "One trainer. A Share says which rows belong to this process and what is summed over ranks.",
        "small",
    )
    picture.box(30, 90, 170, 84, ["Sources", "tables, SQL, PyG,", "OGB, generators"])
    picture.box(250, 90, 170, 84, ["Graph", "CSR, features, labels,", "split; memory-mapped"])
    picture.box(470, 90, 210, 84, ["Sampler", "batch k = f(graph,", "settings, seed, k)"])
    picture.box(730, 90, 200, 84, ["Batch", "blocks, x, y,", "node_norm, exchange"])
    picture.box(250, 226, 170, 84, ["Partition", "METIS, Mt-KaHyPar,", "local search, covers"])
    picture.box(470, 226, 210, 84, ["Part and HaloPlan", "own rows, halo rows,", "who sends what to whom"])
    picture.box(730, 226, 200, 84, ["Model", "convs over an Adjacency;", "Numba and LLVM kernels"])
    picture.box(470, 362, 210, 84, ["Transport", "gloo, MPI, one process;", "bytes counted"])
    picture.box(
        730, 362, 200, 84, ["Trainer(model, share)", "loss, gradients,", "sum over ranks, Adam"], "goal"
    )
    picture.box(250, 362, 170, 84, ["Run folder", "config, metrics,", "checkpoints, report"])
    picture.box(30, 362, 170, 84, ["Results", "predict, embed,", "evaluate, resume"])
    picture.arrow([(200, 132), (250, 132)])
    picture.arrow([(420, 132), (470, 132)])
    picture.arrow([(680, 132), (730, 132)])
    picture.arrow([(335, 174), (335, 226)])
    picture.arrow([(420, 268), (470, 268)])
    picture.arrow([(680, 250), (705, 250), (705, 155), (730, 155)])
    picture.arrow([(830, 174), (830, 226)])
    picture.arrow([(830, 310), (830, 362)])
    picture.arrow([(680, 404), (730, 404)])
    picture.arrow([(575, 310), (575, 362)])
    picture.arrow([(830, 446), (830, 476), (335, 476), (335, 446)])
    picture.arrow([(250, 404), (200, 404)])
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "batches": draw_batches,
    "halo": draw_halo,
    "choice": draw_choice,
    "architecture": draw_architecture,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().render())


if __name__ == "__main__":
    main()
