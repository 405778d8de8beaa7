#!/bin/sh
# Slurm runs this as TaskProlog before every task of every job, as the job's user. So it takes only
# milliseconds if there is no virtual QPU, and never fails a task. Slurm reads what it prints.
# In a shell that Slurm did not start, use: eval "$(prolog.sh JOB)"
here=${0%/*}
url=
slots="qpu quantum"     # words in licences, GRES or partitions that hint at a slot; or: all
ask=64                  # without a hint, ask Slurm in steps of up to this many tasks; 0: never
python=/usr/bin/python3
[ -r "$here/service.conf" ] && . "$here/service.conf"

hints() {  # whether a word of $slots occurs in the given text about the job
    for word in $slots; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

if [ $# -eq 0 ]; then
    [ -n "$url" ] || exit 0
    # the job already has its token
    [ -n "$QTIDE_TOKEN" ] && [ "$QTIDE_JOB" = "$SLURM_JOB_ID" ] && exit 0
    exec </dev/null 2>/dev/null  # Slurm starts this script without stdin and stderr
    told="all $SLURM_JOB_LICENSES $SLURM_JOB_GRES $SLURM_STEP_GRES $SLURM_JOB_PARTITION"
    [ -n "$SLURM_HET_SIZE" ] && told="$told $(env | grep '^SLURM_JOB_PARTITION_HET')"
    if ! hints "$told"; then
        # older versions of Slurm do not set licences here, so ask the controller
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
