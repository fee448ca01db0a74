"""`python -m shoal …` is the `shoal` command; launchers such as torchrun use it."""

from shoal.cli import main

main()
