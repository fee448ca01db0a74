"""Samplers: how batches are drawn from a graph."""
