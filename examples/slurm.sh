#!/bin/bash
# Full-graph training under Slurm, on 2 hosts with 2 ranks each:
#
#   sbatch examples/slurm.sh my-graph runs/first 100
#
# my-graph is a stored graph (`shoal data import`), runs/first the folder to write, 100 the epochs; all on a file system that the
# hosts share. The job cuts the graph once, tests the network, trains, and writes a label for every node. The parts are
# written beside my-graph; where that folder is read-only:  PARTS=/scratch/my-parts sbatch examples/slurm.sh …
#
# 120 s before its time is over the job gets SIGUSR1: ranks finish their step, write a checkpoint and end with 138, and
# the job is queued again, whatever it was doing. A job that runs again, then or after a lost host, goes on from its last
# checkpoint.

#SBATCH --job-name=shoal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --output=shoal-%j.log
#SBATCH --open-mode=append

set -euo pipefail
data=${1%/}
out=${2%/}
epochs=${3:-100}
parts=${PARTS:-$data.parts-$SLURM_NTASKS}

# srun gives tasks the CPUs of --cpus-per-task only where it is told to (Slurm 22.05 and later).
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# One step of the job. If SIGUSR1 has ended it (138), or has reached this script, the job is queued again.
signalled=
trap 'signalled=yes' USR1
step() {
    local code=0
    srun "$@" || code=$?
    if [ "$code" = 138 ] || [ -n "$signalled" ]; then
        scontrol requeue "$SLURM_JOB_ID"
        exit 0
    fi
    [ "$code" = 0 ] || exit "$code"
}

# One process cuts the graph, unless its parts are there and it has not changed since; every rank then reads its own part.
step --nodes=1 --ntasks=1 python -m shoal partition "$data" --parts "$SLURM_NTASKS" -o "$parts" --refresh

# Latency and bandwidth between all ranks; ends the job here if some cannot reach each other.
step python -m shoal doctor

# A run that has ended has its test scores in metrics.jsonl.
if ! grep -qs '"test_' "$out/metrics.jsonl"; then
    step python -m shoal train --parts "$parts" --epochs "$epochs" --out "$out"
fi

step python -m shoal predict "$out" -o "$out/labels.parquet"
