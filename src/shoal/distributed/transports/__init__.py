"""Transports: one file each, registered by name."""
