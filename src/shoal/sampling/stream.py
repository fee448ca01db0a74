"""BatchStream: the batches of a run in order, drawn in the loop or by threads, with features on disk read ahead."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.batch import Batch
from shoal.sampling.base import Sampler
from shoal.sampling.feature_cache import FeatureCaching
from shoal.sampling.feature_stream import READING, FeatureCounts, FeatureStream
from shoal.sampling.prefetch import Prefetcher

_FEATURES_AHEAD = 4


def count_batches_held(num_threads: int, *, cached: bool) -> int:
    """Batches whose features are in memory at most: the step's, the one before it, those drawn and those read ahead."""
    read = count_features_ahead(num_threads) + READING if cached else 0
    return max(2 + 2 * num_threads + read, 3)


def count_features_ahead(num_threads: int) -> int:
    """Batches whose features are gathered ahead of those that are sampled."""
    return max(_FEATURES_AHEAD, 2 * num_threads)


class BatchStream:
    """A sampler's batches from any number on; they do not depend on threads and cache.

    Threads start with the first batch and draw ahead of the requested ones until `close`.

    Args:
        num_threads: sampling threads, 0 to draw in the loop itself.
        caching: how features on disk are read; a cache is made only if they exceed their share of memory.
    """

    def __init__(self, sampler: Sampler, *, num_threads: int = 0, caching: FeatureCaching) -> None:
        self._sampler = sampler
        self._num_threads = num_threads
        self._caching = caching
        self._position: int | None = None  # of the next batch, None while nothing is under way
        self._features: FeatureStream | None = None
        self._drawn: Prefetcher | None = None
        self._counts = FeatureCounts()

    def take(self, start: int, count: int) -> Iterator[Batch]:
        """Batches `start` to `start + count - 1`. If they follow those taken last, threads are already drawing them."""
        if self._position != start:
            self.close()
            self._open(start)
        source = self._sampler if self._features is None else self._features
        try:
            for k in range(start, start + count):
                batch = source.sample(k) if self._drawn is None else next(self._drawn)
                self._position = k + 1
                if self._features is not None:
                    self._counts.add(self._features.take_counts(k))
                yield batch
        except BaseException:
            self.close()
            raise

    def take_counts(self) -> dict[str, float]:
        """Counts of feature reads since the last call; empty without a cache."""
        counts, self._counts = self._counts, FeatureCounts()
        return counts.to_record() if counts.rows else {}

    def close(self) -> None:
        """End the threads."""
        self._position = None
        if self._features is not None:
            self._features.close()
        if self._drawn is not None:
            self._drawn.close()
        self._features = self._drawn = None

    def _open(self, start: int) -> None:
        cache = self._caching.make_cache(self._sampler.graph)
        threads = self._num_threads
        if cache is not None:
            ahead = count_features_ahead(threads)
            self._features = FeatureStream(self._sampler, start, cache, self._caching, ahead=ahead)
        if threads:
            self._drawn = Prefetcher(self._features or self._sampler, start, num_threads=threads)
        self._position = start
