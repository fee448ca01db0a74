"""Partition methods, one file each: a function from Work to an assignment, its settings and its traits."""
