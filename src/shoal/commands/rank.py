"""`shoal _rank`: one of the ranks that `--workers` starts. It reads its job from stdin; users never call it."""

from __future__ import annotations

import sys

import click


@click.command("_rank", hidden=True)
def rank() -> None:
    """Run this rank's share of the job on stdin."""
    from shoal.distributed.launch import follow_launcher, joined_ranks

    follow_launcher()
    import yaml

    from shoal.commands.jobs import do_job

    job = yaml.safe_load(sys.stdin)
    with joined_ranks() as transport:
        do_job(job, transport)
