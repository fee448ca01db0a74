"""Hot loops in Numba, each beside its plain reference."""
