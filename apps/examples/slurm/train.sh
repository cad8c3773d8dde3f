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
# A process a GPU; --batch-size counts the examples of all. SIGTERM, two minutes before the time is over, has frit write a checkpoint and end.
exec srun --kill-on-bad-exit=1 frit train resnet --data "$1" --normalize mean-std --precision f16 --batch-size 512 --epochs 90 \
  --run-dir "$2" --resume auto
