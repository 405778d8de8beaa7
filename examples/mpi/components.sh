#!/bin/sh
# A heterogeneous job of a classical and a quantum component, each an MPI world of its own:
#   sbatch examples/mpi/components.sh [FOLDER [SERVER]]
# SERVER is a compiled quantum component, such as that of server.c.
#SBATCH --nodes=2 --exclusive --time=10
#SBATCH hetjob
#SBATCH --partition=quantum --ntasks=1 --time=10

here=${1:-examples/mpi}
meeting=$(mktemp -d "$PWD/components-XXXXXX") || exit 1
trap 'rm -rf "$meeting"' EXIT

if [ -n "$2" ]
then set -- "$2"
else set -- python "$here/components.py" quantum
fi
srun --het-group=1 --mpi=pmi2 "$@" "$meeting" &
quantum=$!
srun --het-group=0 --mpi=pmi2 --ntasks=2 python "$here/components.py" classical "$meeting" &
classical=$!

wait "$quantum"
scancel "$SLURM_JOB_ID_HET_GROUP_1"  # the QPU is for others now; the classical component goes on
while squeue --noheader --jobs="$SLURM_JOB_ID_HET_GROUP_1" --states=RUNNING,COMPLETING | grep -q .
do
    sleep 0.1
done
echo "the QPU was given back"
touch "$meeting/released"
wait "$classical"
