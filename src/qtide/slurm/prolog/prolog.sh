#!/bin/sh
# Slurm runs this before every task of every job (TaskProlog), as the job's user. So it takes a
# millisecond if there is no virtual QPU, and never fails a task. Slurm reads what it prints.
# In a shell that Slurm did not start: eval "$(prolog.sh JOB)"
here=${0%/*}
url=
slots="qpu quantum"     # words that hint at a slot: licences, GRES, partitions; or: all
python=/usr/bin/python3
[ -r "$here/service.conf" ] && . "$here/service.conf"

if [ $# -eq 0 ]; then
    [ -n "$url" ] || exit 0
    # a step of a job that already has its token
    [ -n "$QTIDE_TOKEN" ] && [ "$QTIDE_JOB" = "$SLURM_JOB_ID" ] && exit 0
    told="all $SLURM_JOB_LICENSES $SLURM_JOB_GRES $SLURM_STEP_GRES $SLURM_JOB_PARTITION"
    [ -n "$SLURM_HET_SIZE" ] && told="$told $(env | grep '^SLURM_JOB_PARTITION_HET')"
    wanted=
    for word in $slots; do
        case $told in *"$word"*) wanted=yes ;; esac
    done
    [ -n "$wanted" ] || exit 0
    exec </dev/null 2>/dev/null  # Slurm starts this without either
fi

"$python" -I -S "$here/prolog.py" "$@"
status=$?
[ $# -eq 0 ] && exit 0
exit $status
