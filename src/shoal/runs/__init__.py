"""A run: its configuration, its folder and its trainer, for one rank and for many."""
