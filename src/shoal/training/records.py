"""History: the records of a trainer's epochs, as a list, a table and a figure."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError, missing_extra
from shoal.notebook import show_facts, show_rows
from shoal.sampling.base import Sampler
from shoal.training.epoch_state import Record

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

    from shoal.graph import Graph

_SHOWN = 10  # epochs in a notebook
_COLUMNS = ("epoch", "loss", "seconds", "nodes_per_second")


class History(list[Record]):
    """A list with one record per epoch; `to_pandas()` makes a table of it."""

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Every figure over the epochs, by name; None if an epoch lacks it, such as scores between evaluations."""
        names = dict.fromkeys(name for record in self for name in record)
        return {name: [record.get(name) for record in self] for name in names}

    def to_pandas(self) -> pd.DataFrame:
        """The records as a DataFrame with a row for each epoch, by whose number rows are indexed; `time` has a column for each of its parts, such as `time_compute`."""
        try:
            import pandas as pd
        except ImportError:
            raise ShoalError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        table = pd.json_normalize(list(self), sep="_", max_level=1)
        return table.set_index(table["epoch"].rename(None), drop=False) if len(table) else table

    def plot(self, metric: str | None = None) -> Figure:
        """Loss and validation score against epochs; `metric` is the score's name, by default the first one recorded."""
        if not self:
            raise ShoalError("nothing is trained yet: call fit before plot")
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise missing_extra("matplotlib", "report", "a plot of the history") from None
        columns = self.columns
        scores = [name for name in columns if name.startswith("val_")]
        if metric is not None and f"val_{metric}" not in scores:
            raise ShoalError(f"no epoch has a val_{metric}: there are {', '.join(scores) or 'no scores'}")
        shown = ["loss", *([f"val_{metric}"] if metric is not None else scores[:1])]

        class Shown(Figure):  # type: ignore[misc, unused-ignore]
            """A figure that notebooks show, whatever matplotlib's backend is."""

            def _repr_png_(self) -> bytes:
                self.savefig(out := BytesIO(), format="png")
                return out.getvalue()

        figure = Shown(figsize=(4.5 * len(shown), 3.2), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown):
            known = [(record["epoch"], record[name]) for record in self if name in record]
            axes.plot(*zip(*known), marker="." if len(known) < 30 else None)
            axes.set(xlabel="epoch", ylabel=name.replace("val_", "validation ", 1))
            axes.grid(alpha=0.3)
        return figure

    def _repr_html_(self) -> str:
        """The first and the last epochs as an HTML table."""
        scores = [name for name in self.columns if name.startswith("val_")]
        names = [*_COLUMNS[:2], *scores, *_COLUMNS[2:]]
        kept = list(self) if len(self) <= _SHOWN else [*self[: _SHOWN - 1], self[-1]]
        rows = [[record.get(name) for name in names] for record in kept]
        return show_rows(names, rows, more=len(self) - len(kept))


class Recorded:
    """A trainer's display in notebooks: model, graph, sampler, progress, and a plot of its history."""

    model: nn.Module
    graph: Graph
    sampler: Sampler
    history: History
    epoch: int
    metric: str
    best_score: float
    best_epoch: int

    def plot(self) -> Figure:
        """Loss and validation score against epochs, as a matplotlib figure (extra `report`)."""
        scored = any(f"val_{self.metric}" in record for record in self.history)
        return self.history.plot(self.metric if scored else None)

    def __repr__(self) -> str:
        best = f", best {self.metric} {self.best_score:.4f}" if self.best_epoch else ""
        parts = f"{type(self.model).__name__}, {self.graph.name!r}, {type(self.sampler).__name__}"
        return f"{type(self).__name__}({parts}, epoch {self.epoch}{best})"

    def list_facts(self) -> dict[str, object]:
        """Model, graph, sampler and how far training is, by what a table calls them."""
        best = f"{self.best_score:.4f} in epoch {self.best_epoch:,}" if self.best_epoch else None
        return {
            "model": f"{type(self.model).__name__}, {sum(one.numel() for one in self.model.parameters()):,} weights",
            "graph": repr(self.graph),
            "sampler": repr(self.sampler),
            "epochs trained": self.epoch,
            "loss": self.history[-1]["loss"] if self.history else None,
            f"best validation {self.metric}": best,
        }

    def _repr_html_(self) -> str:
        """The trainer as an HTML table."""
        return show_facts(type(self).__name__, self.list_facts())
