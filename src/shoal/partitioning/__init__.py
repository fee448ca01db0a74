"""Splitting a graph among ranks: partitioners, what they cost, and the parts themselves."""
