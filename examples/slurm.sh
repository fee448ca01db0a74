#!/bin/bash
# Full-graph training under Slurm, on 2 hosts with 2 ranks each:
#
#   sbatch examples/slurm.sh my-graph runs/first 100
#
# my-graph is a stored graph (`shoal data import`), runs/first the folder to write, 100 the epochs; all on a file system that the
# hosts share. The job cuts the graph once, tests the network, trains, and writes a label for every node.
#
# 120 s before its time is over the job gets SIGUSR1: ranks finish their step, write a checkpoint and end with 138, and
# the job is queued again. A job that runs again, then or after a lost host, goes on from its last checkpoint.

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
parts=$data.parts-$SLURM_NTASKS

# srun gives tasks the CPUs of --cpus-per-task only where it is told to (Slurm 22.05 and later).
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# One process cuts the graph, unless its parts are there and it has not changed since; every rank then reads its own part.
srun --nodes=1 --ntasks=1 python -m shoal partition "$data" --parts "$SLURM_NTASKS" -o "$parts" --refresh

# Latency and bandwidth between all ranks; ends the job here if some cannot reach each other.
srun python -m shoal doctor

# A run that has ended has its test scores in metrics.jsonl.
if ! grep -qs '"test_' "$out/metrics.jsonl"; then
    code=0
    srun python -m shoal train --parts "$parts" --epochs "$epochs" --out "$out" || code=$?
    if [ "$code" = 138 ]; then
        scontrol requeue "$SLURM_JOB_ID"
        exit 0
    fi
    [ "$code" = 0 ] || exit "$code"
fi

srun python -m shoal predict "$out" -o "$out/labels.parquet"
