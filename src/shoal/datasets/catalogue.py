"""The registered datasets: sizes, licences, addresses and published scores, family by family."""

from __future__ import annotations

from shoal.datasets.dataset import Dataset, RemoteFile, Score

PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
PLANETOID_FILES = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
GCN_PAPER = "Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017, table 2"

# Flickr and Yelp are also packed, in the publisher's format, by DGL. Reddit and Amazon have only the file
# identifiers of the publisher's shared folder; PPI has not even those.
SAINT_PAGE = "https://drive.google.com/drive/folders/1zycmmDES39zVlbVCYs88JTJ1Wm5FbfLz"
SAINT_PAPER = "GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020"
SAINT_LICENCE = "not stated by the publisher"
DGL = "https://data.dgl.ai/dataset"
DRIVE = "https://drive.usercontent.google.com/download?id={}&confirm=t"

OGB = "https://snap.stanford.edu/ogb/data/nodeproppred"
OGB_PAGE = "https://ogb.stanford.edu/docs/nodeprop/"
OGB_PAPER = "Open Graph Benchmark: Datasets for Machine Learning on Graphs, NeurIPS 2020"
BNS_PAPER = "BNS-GCN: Efficient Full-Graph Training of Graph Convolutional Networks with Partition-Parallelism and Random Boundary Node Sampling, MLSys 2022, table 4"

SUITE_SPARSE = "https://sparse.tamu.edu"
VLDB_PAPER = "Scalable Graph Convolutional Network Training on Distributed-Memory Systems, VLDB 2022, table 1"


def _planetoid(name: str, title: str, nodes: int, edges: int, features: int, classes: int, train: int, score: float) -> Dataset:  # fmt: skip
    names = [f"ind.{name}.{part}" for part in PLANETOID_FILES]
    return Dataset(
        name=name,
        title=title,
        page="https://github.com/kimiyoung/planetoid",
        licence="MIT",
        num_nodes=nodes,
        num_edges=edges,
        num_features=features,
        num_classes=classes,
        format="planetoid",
        files=tuple(RemoteFile(f"{PLANETOID}/{file}", file) for file in names),
        split=f"{train} / 500 / 1,000 nodes",
        task="transductive, single-label",
        score=Score(score, "accuracy", "GCN", GCN_PAPER),
        reference="Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016",
    )


def _saint(name: str, title: str, nodes: int, edges: int, features: int, classes: int, *, multi: bool, split: str, score: float | None, files: tuple[RemoteFile, ...] = (), folder: str = ".") -> Dataset:  # fmt: skip
    published = (
        Score(score, "f1_micro", "GraphSAINT, random walks", f"{SAINT_PAPER}, table 2") if score else None
    )
    return Dataset(
        name=name,
        title=title,
        page=SAINT_PAGE,
        licence=SAINT_LICENCE,
        num_nodes=nodes,
        num_edges=edges,
        num_features=features,
        num_classes=classes,
        multi_label=multi,
        format="graphsaint",
        files=files,
        folder=folder,
        split=split,
        task=f"inductive, {'multi-label' if multi else 'single-label'}",
        score=published,
        reference=SAINT_PAPER,
    )


def _drive(**identifiers: str) -> tuple[RemoteFile, ...]:
    names = {
        "adj_full": "adj_full.npz",
        "feats": "feats.npy",
        "class_map": "class_map.json",
        "role": "role.json",
    }
    return tuple(RemoteFile(DRIVE.format(identifiers[key]), name) for key, name in names.items())


def _ogb(name: str, archive: str, title: str, nodes: int, edges: int, features: int, classes: int, *, directed: bool, licence: str, split: str, score: Score) -> Dataset:  # fmt: skip
    return Dataset(
        name=name,
        title=title,
        page=f"{OGB_PAGE}#{name}",
        licence=licence,
        num_nodes=nodes,
        num_edges=edges,
        num_features=features,
        num_classes=classes,
        directed=directed,
        format="ogb",
        files=(RemoteFile(f"{OGB}/{archive}.zip", f"{archive}.zip"),),
        folder=archive,
        split=split,
        task="transductive, single-label",
        score=score,
        reference=OGB_PAPER,
    )


def _matrix(group: str, matrix: str, title: str, nodes: int, edges: int, *, directed: bool, name: str | None = None) -> Dataset:  # fmt: skip
    return Dataset(
        name=name or matrix,
        title=title,
        page=f"{SUITE_SPARSE}/{group}/{matrix}",
        licence="CC-BY-4.0",
        num_nodes=nodes,
        num_edges=edges,
        directed=directed,
        format="mtx",
        files=(RemoteFile(f"{SUITE_SPARSE}/MM/{group}/{matrix}.tar.gz", f"{matrix}.tar.gz"),),
        folder=f"{matrix}/{matrix}.mtx",
        task="topology only",
        reference=VLDB_PAPER,
    )


DATASETS = (
    _planetoid("cora", "machine-learning papers and their citations", 2_708, 5_278, 1_433, 7, 140, 0.815),
    _planetoid("citeseer", "computer-science papers and their citations", 3_327, 4_552, 3_703, 6, 120, 0.703),
    _planetoid("pubmed", "diabetes papers and their citations", 19_717, 44_324, 500, 3, 60, 0.790),
    _saint("ppi", "protein interactions, GraphSAINT's version", 14_755, 225_270, 50, 121, multi=True, split="66 / 12 / 22 %", score=0.981),
    _saint("ppi-large", "protein interactions in 24 tissues", 56_944, 818_716, 50, 121, multi=True, split="79 / 11 / 10 %", score=None),
    _saint(
        "reddit", "posts joined by common commenters, GraphSAINT's sparser version", 232_965, 11_606_919, 602, 41,
        multi=False, split="66 / 10 / 24 %", score=0.966,
        files=_drive(
            adj_full="1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
            feats="1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
            class_map="1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
            role="1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
        ),
    ),
    _saint(
        "flickr", "images joined by common properties", 89_250, 449_878, 500, 7,
        multi=False, split="50 / 25 / 25 %", score=0.511,
        files=(RemoteFile(f"{DGL}/flickr.zip", "flickr.zip"),),
    ),
    _saint(
        "yelp", "users joined by friendship", 716_847, 6_977_410, 300, 100,
        multi=True, split="75 / 10 / 15 %", score=0.653,
        files=(RemoteFile(f"{DGL}/yelp.zip", "yelp.zip"),),
    ),
    # The released files hold 1,569,960 nodes; the paper's table prints 1,598,960.
    _saint(
        "amazon", "products joined by common buyers", 1_569_960, 132_169_734, 200, 107,
        multi=True, split="80 / 5 / 15 %", score=0.815,
        files=_drive(
            adj_full="17qhNA8H1IpbkkR-T2BmPQm8QNW5do-aa",
            feats="10SW8lCvAj-kb6ckkfTOC5y0l8XXdtMxj",
            class_map="1LIl4kimLfftj4-7NmValuWyCQE8AaE7P",
            role="1npK9xlmbnjNkV80hK2Q68wTEVOFjnt4K",
        ),
    ),
    _ogb(
        "ogbn-arxiv", "arxiv", "computer-science papers and their citations", 169_343, 1_166_243, 128, 40,
        directed=True, licence="ODC-BY", split="by year",
        score=Score(0.7174, "accuracy", "GCN", f"{OGB_PAPER}, table 6"),
    ),
    _ogb(
        "ogbn-products", "products", "products bought together", 2_449_029, 61_859_140, 100, 47,
        directed=False, licence="Amazon licence", split="by sales rank",
        score=Score(0.7914, "accuracy", "SAGE, full batch", BNS_PAPER),
    ),
    _ogb(
        "ogbn-papers100M", "papers100M-bin", "papers and their citations", 111_059_956, 1_615_685_872, 128, 172,
        directed=True, licence="ODC-BY", split="by year",
        score=Score(0.6329, "accuracy", "SGC", OGB_PAPER),
    ),
    _matrix("SNAP", "amazon0601", "products bought together, June 2003", 403_394, 3_387_388, directed=True),
    _matrix("SNAP", "cit-Patents", "patents and their citations", 3_774_768, 16_518_948, directed=True),
    _matrix("DIMACS10", "coPapersDBLP", "papers joined by common authors", 540_486, 15_245_729, directed=False),
    _matrix("SNAP", "com-Amazon", "products bought together", 334_863, 925_872, directed=False),
    _matrix("SNAP", "com-Youtube", "users joined by friendship", 1_134_890, 2_987_624, directed=False),
    # Called `flickr` in the collection; that name is taken by GraphSAINT's graph above.
    _matrix("Gleich", "flickr", "users and their contacts", 820_878, 9_837_214, directed=True, name="flickr-contacts"),
    _matrix("SNAP", "roadNet-CA", "roads of California", 1_971_281, 2_766_607, directed=False),
    _matrix("SNAP", "soc-Slashdot0902", "users and their friends and foes", 82_168, 948_464, directed=True),
)  # fmt: skip
