"""A run: its configuration, its folder, and how these become a trainer; the same for one rank and many."""
