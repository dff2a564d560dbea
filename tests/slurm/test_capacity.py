"""What a worker in a job offers is what Slurm gave to the job."""

from __future__ import annotations

from .site import Site


def test_a_job_with_500_megabytes_offers_no_more(site: Site) -> None:
    job = site.worker_job("--mem=500", cpus=1)
    site.wait_until_up(job)

    (worker,) = site.mulligan("workers")

    assert worker["capacity"]["memory"] <= 500 << 20
    assert worker["capacity"]["cpus"] == 1
