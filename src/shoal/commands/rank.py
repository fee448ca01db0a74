"""`shoal _rank JOB`: one of the ranks that `--workers` starts. The job file says what it does; nobody types this."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("_rank", hidden=True)
@click.argument("job", type=click.Path(path_type=Path))
def rank(job: Path) -> None:
    """Do this rank's share of a job."""
    import yaml

    from shoal.commands.jobs import do_job
    from shoal.distributed.launch import joined_ranks

    content = yaml.safe_load(job.read_text())
    with joined_ranks() as transport:
        do_job(content, transport)
