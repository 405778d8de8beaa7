"""Changes its folder, grows, and has a second block, which grows as well."""

import os
import sys

from qtide.malleable import Job

os.chdir("inner")

with Job(most=2) as job:
    state = job.begin(total=0)
    comm = job.comm
    for _ in job.steps(2):
        job.expand(2, least=2, wait=60)
        state.total += comm.allreduce(comm.rank + 1)
    if job.root:
        print(f"first {job.size} {state.total}", flush=True)
with Job(most=3) as second:
    after = second.begin(total=job.state.total)
    for step in second.steps(2):
        second.expand(2 + step, least=2 + step, wait=60)
        after.total += second.comm.allreduce(1)
    sys.stdout.write(f"second {second.size} {after.total} {os.environ.get('QTIDE_JOIN')}\n")
