"""Python steps with requirements: they run in an environment of theirs, and building it is part of the attempt."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.work import Work, kill

from mulligan.core.deciding.classify import classify
from mulligan.core.model.reports import TaskEnded, TaskInterrupted
from mulligan.core.model.workflow import Secret
from mulligan.ports import Lease
from mulligan.worker.environments.environment_cache import find_unused, remove_unused

from .wheels import FakeUv

VERSION = "import tiny\ndef main(): return tiny.VERSION"
WHERE = "import os, sys, mulligan\ndef main(): return [sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH']]"


class Site:
    """Workers that share one cache and one fake uv."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.uv = FakeUv(folder / "bin", "tiny==1.0")
        self._workers: list[Work] = []

    def worker(self, name: str = "one") -> Work:
        (self.folder / name).mkdir()
        work = Work(self.folder / name)
        self._workers.append(work)
        return work

    def close(self) -> None:
        while self._workers:
            work = self._workers.pop()
            work.close()
            assert work.remaining() == []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path)
    monkeypatch.setenv("MULLIGAN_CACHE", str(site.cache))
    monkeypatch.setenv("MULLIGAN_INSTALLER", str(site.uv.program))
    yield site
    site.close()


def step(work: Work, code: str = VERSION, *requirements: str, **fields: object) -> Lease:
    params = {"code": code, "requirements": list(requirements or ("tiny",))}
    return work.lease("python", params, **fields)


def is_building(work: Work, lease: Lease) -> bool:
    """Whether the log of the attempt shows that the installer is at work."""
    log = work.log(lease, "err")
    return log.exists() and "installing\n" in log.read_text()


# -- where it runs


def test_a_step_runs_in_an_environment_that_has_what_it_requires(site: Site) -> None:
    work = site.worker()

    report = work.run(step(work, WHERE))

    prefix, activated, path = report.output
    assert prefix.startswith(str(site.cache))
    assert activated == prefix
    assert path.split(":")[0] == f"{prefix}/bin"
    assert work.run(step(work)).output == "1.0"


def test_a_step_without_requirements_does_not_see_those_of_another(site: Site) -> None:
    work = site.worker()

    assert work.run(step(work)).output == "1.0"
    assert "No module named 'tiny'" in work.run_python(VERSION).outcome.message


def test_steps_with_different_requirements_do_not_share_a_process(site: Site) -> None:
    site.uv.offer("tiny==1.0", "other==2.0")
    work = site.worker()
    both = "import os, importlib.util\ndef main(): return [os.getpid(), importlib.util.find_spec('other') is not None]"

    one, other, again = (
        work.run(step(work, both, *requirements)).output for requirements in (("tiny",), ("other",), ("tiny",))
    )

    assert (one[1], other[1]) == (False, True)
    assert one == again
    assert one[0] != other[0]


def test_the_builder_gets_neither_the_variables_nor_the_secrets_of_the_step(site: Site) -> None:
    work = site.worker()

    work.run(step(work, env={"PASSWORD": "hunter2hunter2"}))

    assert "hunter2" not in site.uv.environments


# -- once


@pytest.mark.nightly
def test_tasks_that_ask_at_the_same_time_have_one_build(site: Site) -> None:
    here, there = site.worker("here"), site.worker("there")
    leases = [step(here), step(here)]
    here.start(*leases)
    there.start(step(there))

    reports = [*here.reports(2), *there.reports()]

    assert [report.output for report in reports if isinstance(report, TaskEnded)] == ["1.0"] * 3
    assert [site.uv.count(words) for words in ("pip compile", "venv", "pip install")] == [1, 1, 1]


def test_a_task_that_waits_for_a_failing_build_fails_with_it(site: Site) -> None:
    site.uv.close_gate()
    work = site.worker()
    first, second = step(work), step(work)
    work.start(first)
    work.wait_for(lambda: is_building(work, first))
    work.start(second)
    log = work.log(second, "err")
    work.wait_for(lambda: log.exists() and "waiting for another process" in log.read_text())

    site.uv.open_gate("fail")

    for report in work.reports(2):
        assert isinstance(report, TaskEnded)
        failure, _ = classify(report.outcome)
        assert failure is not None
        assert (failure.code, failure.retryable) == ("REQUIREMENTS_FAILED", True)
        assert failure.message == "its requirements cannot be installed: Failed to fetch: the index is away"
    assert site.uv.count("pip install") == 1


def test_an_environment_that_disappears_is_built_again(site: Site) -> None:
    work = site.worker()
    assert work.run(step(work)).output == "1.0"
    shutil.rmtree(site.cache)

    assert work.run(step(work, version="v2")).output == "1.0"
    assert site.uv.count("venv") == 2


def test_a_worker_keeps_the_environments_that_it_uses(site: Site) -> None:
    work = site.worker()
    work.run(step(work))
    found = find_unused(str(site.cache), 0.0)
    [environment] = [path for path in found if "/environments/" in path]

    assert not remove_unused(environment, 0.0)

    site.close()
    assert remove_unused(environment, 0.0)


# -- failing


def test_a_build_that_fails_says_what_the_installer_said(site: Site) -> None:
    work = site.worker()
    lease = step(work, VERSION, "nothing")

    report = work.run(lease)

    failure, _ = classify(report.outcome)
    assert failure is not None
    assert (failure.code, failure.retryable) == ("REQUIREMENTS_FAILED", False)
    assert failure.message == (
        "its requirements cannot be installed: No solution found when resolving dependencies: Because nothing was not "
        "found in the package registry"
    )
    assert failure.details["requirements"] == ["nothing"]
    assert "error: No solution found when resolving dependencies\n" in work.log(lease, "err").read_text()


def test_after_a_failure_the_next_attempt_tries_again(site: Site) -> None:
    site.uv.offer()
    work = site.worker()
    work.run(step(work))
    site.uv.offer("tiny==1.0")

    assert work.run(step(work)).output == "1.0"


def test_an_interpreter_that_is_not_there_is_reported_as_for_any_step(site: Site) -> None:
    work = site.worker()

    report = work.run(work.lease("python", {"code": VERSION, "requirements": ["tiny"], "interpreter": "python9"}))

    assert report.outcome.stderr_tail == "python9: command not found"


# -- its log, and its end


def test_the_log_of_the_attempt_shows_the_build_while_it_lasts_and_then_the_step_alone(site: Site) -> None:
    site.uv.close_gate()
    work = site.worker()
    lease = step(work, "import sys\ndef main(): print('from the step', file=sys.stderr)")
    work.start(lease)

    work.wait_for(lambda: is_building(work, lease))

    assert (
        work.log(lease, "err")
        .read_text()
        .startswith("mulligan: building an environment for 1 requirement with uv: tiny\n")
    )
    site.uv.open_gate()
    work.reports()
    assert work.log(lease, "err").read_text() == "from the step\n"


def test_a_secret_is_redacted_in_the_log_of_a_build(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "nothing")
    work = site.worker()
    lease = step(work, VERSION, "nothing", secrets={"token": Secret(env="TOKEN")})

    report = work.run(lease)

    failure, _ = classify(report.outcome)
    assert failure is not None
    assert failure.code == "REQUIREMENTS_FAILED"
    assert "nothing" not in failure.message
    log = work.log(lease, "err").read_text()
    assert "No solution found" in log
    assert "nothing" not in log


def test_a_step_that_knows_a_secret_runs_in_its_environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    work = site.worker()
    code = "import sys, tiny\ndef main(): print('it is hunter2', file=sys.stderr); return tiny.VERSION"
    lease = step(work, code, secrets={"token": Secret(env="TOKEN")})

    assert work.run(lease).output == "1.0"
    log = work.log(lease, "err").read_text()
    assert log.startswith("it is ")
    assert "hunter2" not in log


def test_a_task_that_is_stopped_while_it_builds_ends_with_its_build(site: Site) -> None:
    site.uv.close_gate()
    work = site.worker()
    lease = step(work)
    work.start(lease)
    work.wait_for(lambda: is_building(work, lease))

    work.executor.stop(lease.token, 5.0)

    [report] = work.reports()
    assert isinstance(report, TaskEnded)
    assert report.outcome.is_stopped
    assert report.outcome.signal
    (site.uv.folder / "gate").unlink()
    assert work.run(step(work)).output == "1.0"


def test_a_worker_that_leaves_interrupts_a_build(site: Site) -> None:
    site.uv.close_gate()
    work = site.worker()
    lease = step(work)
    work.start(lease)
    work.wait_for(lambda: is_building(work, lease))

    work.executor.stop_all(5.0)

    [report] = work.reports()
    assert isinstance(report, TaskInterrupted)


def test_a_builder_that_is_killed_is_a_failure_and_the_next_attempt_builds(site: Site) -> None:
    site.uv.close_gate()
    work = site.worker()
    lease = step(work)
    work.start(lease)
    work.wait_for(lambda: is_building(work, lease))
    builders = [pid for pid in work.leftovers() if b"environment_builder" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    kill(builders[0])

    [report] = work.reports()
    assert isinstance(report, TaskEnded)
    assert report.outcome.signal == 9
    os.unlink(site.uv.folder / "gate")
    assert work.run(step(work)).output == "1.0"


def test_the_timeout_of_a_step_begins_when_its_environment_is_ready(site: Site) -> None:
    work = site.worker()

    report = work.run(step(work, "import tiny, time\ndef main(): time.sleep(600)", timeout=0.01))

    assert report.outcome.is_timed_out
    assert not report.outcome.is_past_deadline
    assert site.uv.count("pip install") == 1
    assert work.run(step(work)).output == "1.0"
    assert site.uv.count("pip install") == 1


def test_the_deadline_of_a_visit_ends_a_build(site: Site) -> None:
    site.uv.close_gate()
    work = site.worker()

    report = work.run(step(work, timeout=0.01, deadline=datetime.now(UTC)))

    assert report.outcome.is_timed_out
    assert report.outcome.is_past_deadline
