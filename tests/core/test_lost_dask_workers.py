"""What is said about a Dask worker that was lost."""

from __future__ import annotations

from mulligan.core.model.clusters.on_dask import loss_details, name_dask_worker
from mulligan.history.phrases import describe_lost_worker

NAME = name_dask_worker("tcp://10.0.0.7:4711", "node7")


def test_the_details_of_the_failure_name_its_address_and_its_host() -> None:
    assert loss_details(NAME) == {"dask": {"worker": "tcp://10.0.0.7:4711", "host": "node7"}}
    assert loss_details("vm.17.abcdef") == {}


def test_the_story_names_it() -> None:
    assert describe_lost_worker(NAME, None) == "the Dask worker tcp://10.0.0.7:4711 on node7 is gone"
    assert describe_lost_worker("vm.17.abcdef", None) == "its worker is gone"
