"""HyperQueue: COUNT shell tasks `true` on a worker with PARALLEL cores, log files each, then one that needs them all.

Through the Python API, with server and worker in this process: the wheel carries no `hq` program.
"""

from __future__ import annotations

import os
import sys

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

count, parallel = int(sys.argv[1]), int(sys.argv[2])
with LocalCluster(os.path.abspath("server"), WorkerConfig(cores=parallel)) as cluster:
    client = cluster.client()
    job = Job(default_workdir=".")
    tasks = [job.program(["bash", "-c", "true"]) for _ in range(count)]
    job.program(["bash", "-c", "true"], deps=tasks)
    assert client.wait_for_jobs([client.submit(job)])
