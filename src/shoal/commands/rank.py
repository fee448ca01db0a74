"""`shoal _rank`: one of the ranks that `--workers` starts. Its input says what it does; nobody types this."""

from __future__ import annotations

import sys

import click


@click.command("_rank", hidden=True)
def rank() -> None:
    """Do this rank's share of a job, which is read from the input."""
    from shoal.distributed.launch import follow_launcher, joined_ranks

    follow_launcher()
    import yaml

    from shoal.commands.jobs import do_job

    job = yaml.safe_load(sys.stdin)
    with joined_ranks() as transport:
        do_job(job, transport)
