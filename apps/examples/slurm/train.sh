#!/bin/sh
# Trains on two machines of four GPUs each: sbatch train.sh DATA RUN-FOLDER, both on a file system that all of them see. Submitted once more,
# on any number of machines, it goes on where it was.
#SBATCH --job-name=frit
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@120
set -eu
# Of Slurm 22.05 and later srun does not take over what the job says of cores, and not every Slurm binds processes to theirs.
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" FRIT_THREADS="$SLURM_CPUS_PER_TASK"
# A process a GPU; --batch-size counts the examples of all. SIGTERM, two to three minutes before the time is over or from scancel, has frit
# write a checkpoint and end. Processes on CPUs speak MPI, of which srun must know: --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH.
exec srun --kill-on-bad-exit=1 frit train resnet --data "$1" --normalize mean-std --precision f16 --batch-size 512 --epochs 90 \
  --run-dir "$2" --resume auto
