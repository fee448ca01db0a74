"""Exchanges: one file each, registered by name."""
