"""`shoal data …`: list, describe, import, fetch and verify graphs."""

import click


@click.group()
def data() -> None:
    """List, describe, import, fetch and verify graphs."""
