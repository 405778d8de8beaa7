"""Changes its folder, grows, and has a second block."""

import os

from qtide.core.errors import UsageError
from qtide.malleable import Job

os.chdir("inner")

with Job(most=2) as job:
    job.begin()
    print(job.expand(2, least=2, wait=60)) if job.root else job.expand(2, least=2, wait=60)
try:
    with Job(most=2) as second:
        print("a second block")
except UsageError as error:
    print(error)
