#!/bin/sh
# Slurm runs this before every task of every job (TaskProlog), as the job's user. So it takes
# milliseconds if there is no virtual QPU, and never fails a task. Slurm reads what it prints.
# In a shell that Slurm did not start: eval "$(prolog.sh JOB)"
here=${0%/*}
url=
slots="qpu quantum"     # words that hint at a slot: licences, GRES, partitions; or: all
ask=64                  # without a hint, tasks of steps of up to so many ask Slurm; 0: none do
python=/usr/bin/python3
[ -r "$here/service.conf" ] && . "$here/service.conf"

hints() {  # whether the words of $slots are among what is known of the job
    for word in $slots; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

if [ $# -eq 0 ]; then
    [ -n "$url" ] || exit 0
    # a step of a job that already has its token, or of one that has no slot
    [ -n "$QTIDE_TOKEN" ] && [ "$QTIDE_JOB" = "$SLURM_JOB_ID" ] && exit 0
    exec </dev/null 2>/dev/null  # Slurm starts this without either
    told="all $SLURM_JOB_LICENSES $SLURM_JOB_GRES $SLURM_STEP_GRES $SLURM_JOB_PARTITION"
    [ -n "$SLURM_HET_SIZE" ] && told="$told $(env | grep '^SLURM_JOB_PARTITION_HET')"
    if ! hints "$told"; then
        # older versions of Slurm name no licences here: its controller knows them
        [ "$QTIDE_NO_SLOT" = "$SLURM_JOB_ID" ] && exit 0
        [ "${SLURM_STEP_NUM_TASKS:-1}" -le "$ask" ] || exit 0
        held=$(timeout 3 squeue --noheader --jobs="${SLURM_HET_JOB_ID:-$SLURM_JOB_ID}" --format="%W %b")
        if [ -z "$held" ]; then
            echo "export QTIDE_REFUSED=job $SLURM_JOB_ID: Slurm did not say in time whether it holds a QPU"
            exit 0
        fi
        hints "$held" || { echo "export QTIDE_NO_SLOT=$SLURM_JOB_ID"; exit 0; }
    fi
fi

"$python" -I -S "$here/prolog.py" "$@"
status=$?
[ $# -eq 0 ] && exit 0
exit $status
