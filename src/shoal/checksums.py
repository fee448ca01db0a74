"""Checksums that identify a graph, for caches and resumed runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.digest import combine_digests, digest_arrays, name_features
from shoal.validation import MASKS

if TYPE_CHECKING:
    from shoal.graph import Features


class Checksums:
    """The checksums of a Graph. Digests of stored arrays are known and not computed again."""

    if TYPE_CHECKING:
        indptr: np.ndarray
        indices: np.ndarray
        train_mask: np.ndarray | None
        _checksum: str | None
        _digests: dict[str, tuple[np.ndarray, str]]

        @property
        def x(self) -> Features | None: ...

    @property
    def checksum(self) -> str:
        """Identifies topology and split, on which a sampler's output depends. Caches are keyed by it.

        For a stored graph with a newly drawn split, stored digests are combined; the arrays are not read.
        """
        if self._checksum is None:
            known = {"indptr": self.indptr, "indices": self.indices}
            if all(self._digests.get(name, (None,))[0] is array for name, array in known.items()):
                self._checksum = combine_digests({**known, "train_mask": self.train_mask}, self._digests)
            else:
                self._checksum = digest_arrays(self.indptr, self.indices, self.train_mask)
        return self._checksum

    def has_checksum(self, checksum: str) -> bool:
        """Whether a checksum is this graph's, in either of its two forms.

        Args:
            checksum: combined from digests, or computed from the arrays.
        """
        pattern = self.indptr, self.indices
        return checksum == self.checksum or checksum == digest_arrays(*pattern, self.train_mask)

    @property
    def content_checksum(self) -> str:
        """Identifies what `checksum` leaves out: features, labels, validation and test set."""
        names = ("y", "edge_weight", *MASKS[1:])
        arrays = {name: getattr(self, name) for name in names}
        return combine_digests({**arrays, **name_features(self.x)}, self._digests)
