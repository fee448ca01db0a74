"""Algorithms for the pops of the frontier sampler, one per file: the same distribution at different cost."""
