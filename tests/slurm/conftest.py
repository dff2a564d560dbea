"""Workers as jobs of a real Slurm, which the tests start themselves: see private_slurm.py.

They run with `make slurm`. Everywhere else they are skipped: they need Slurm and root, and wait for Slurm's clocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.private_slurm import PrivateSlurm, why_not

from .site import Site

FOLDER = Path(__file__).parent
_SITE = pytest.StashKey[Site]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not() if os.environ.get("MULLIGAN_SLURM") else "tests with a real Slurm run with: make slurm"
    if not reason:
        return
    prefix = f"{FOLDER}{os.sep}"
    for item in items:
        if str(item.path).startswith(prefix):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Beside a failure stand what the jobs wrote, and what Slurm says of them."""
    report = yield
    if report.when == "call" and report.failed and _SITE in item.stash:
        report.sections.extend(item.stash[_SITE].evidence())
    return report


@pytest.fixture(scope="session")
def _slurms() -> Iterator[Callable[[str], PrivateSlurm]]:
    """One Slurm of each kind for this process, from the first test that asks for it on."""
    running: dict[str, PrivateSlurm] = {}
    with ExitStack() as held:

        def start(proctrack: str) -> PrivateSlurm:
            if proctrack not in running:
                if reason := why_not(proctrack):
                    pytest.skip(reason)
                running[proctrack] = held.enter_context(PrivateSlurm(proctrack))
            return running[proctrack]

        yield start


@pytest.fixture(params=["cgroup", "linuxproc"])
def slurm(request: pytest.FixtureRequest, _slurms: Callable[[str], PrivateSlurm]) -> Iterator[PrivateSlurm]:
    """A Slurm whose jobs have all ended, once with each way in which it finds the processes of a job."""
    private = _slurms(request.param)
    yield private
    private.start_what_is_missing()
    private.cancel_all()


@pytest.fixture
def site(request: pytest.FixtureRequest, slurm: PrivateSlurm, tmp_path: Path, store_schema_url: str) -> Iterator[Site]:
    """A folder, a store and the Slurm. What the test starts on the login node ends with it."""
    site = request.node.stash[_SITE] = Site(slurm, tmp_path, store_schema_url)
    yield site
    site.close()
