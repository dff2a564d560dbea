"""`mulligan.open`: the runs of a home, found, started, waited for and decided about."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import mulligan
from mulligan import Workflow
from mulligan.client.run import RunHeldUp
from mulligan.errors import (
    HomeUnusable,
    InputInvalid,
    RunNotDriven,
    StepNotWaitingForApproval,
    UnknownRun,
    WaitTimedOut,
)


def good(name: str = "good") -> Workflow:
    return Workflow(name).step("s", shell="echo done")


def bad(name: str = "bad") -> Workflow:
    return Workflow(name).step("s", shell="exit 3")


def asking() -> Workflow:
    return Workflow("asking").step("ask", approve={"message": "Go?"})


# -- finding runs ----------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_filtered():
    for flow in (good(), bad(), good("other")):
        mulligan.run(flow, labels={"team": flow.check().name})

    with mulligan.open() as home:
        ids = {
            name: [run.id for run in found]
            for name, found in {
                "all": home.runs(),
                "failed": home.runs(status="failed", limit=20),
                "ended": home.runs(status=["ended", "paused"]),
                "open": home.runs(status="open"),
                "workflow": home.runs(workflow="other"),
                "labels": home.runs(labels={"team": "bad"}),
                "limit": home.runs(limit=1),
                "next page": home.runs(limit=1, before=3),
                "who": home.runs(who="nobody"),
                "text": home.runs(text="othe"),
                "failure": home.runs(failure=["EXIT_NONZERO", "TIMEOUT"]),
                "since": home.runs(since="1h", until=datetime.now(UTC) + timedelta(hours=1)),
                "until": home.runs(until=timedelta(hours=1)),
            }.items()
        }

    assert ids == {
        "all": [3, 2, 1],
        "failed": [2],
        "ended": [3, 2, 1],
        "open": [],
        "workflow": [3],
        "labels": [2],
        "limit": [3],
        "next page": [2],
        "who": [],
        "text": [3],
        "failure": [2],
        "since": [3, 2, 1],
        "until": [],
    }


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ({"status": "faild"}, "'faild' is not a status of a run", "did you mean 'failed'?"),
        ({"status": "waiting"}, "'waiting' is not a status of a run", "a run that waits counts as running"),
        ({"status": "x"}, "'x' is not a status of a run", "give running, paused, completed"),
        ({"limit": 0}, "limit must be a whole number, at least 1, not 0", ""),
        ({"since": "someday"}, "'someday' is not a time", "write it like 2h"),
    ],
)
def test_a_list_that_cannot_be_is_refused(asked: dict[str, object], message: str, hint: str):
    with pytest.raises(InputInvalid) as refused:
        mulligan.open().runs(**asked)  # type: ignore[arg-type]

    assert message in refused.value.message
    assert hint in refused.value.hint


def test_a_home_without_runs_is_empty_and_creates_nothing(folder: Path):
    with mulligan.open() as home:
        assert (home.runs(), home.pending(), repr(home)) == ([], [], f"<Home '{folder}/.mulligan'>")
        with pytest.raises(UnknownRun, match="there is no run 7"):
            home.get(7)
        with pytest.raises(UnknownRun, match="'nightly' is not the number of a run"):
            home.get("nightly")

    assert not (folder / ".mulligan").exists()


def test_a_home_that_cannot_be_used_is_refused(folder: Path):
    Path("file").touch()

    with pytest.raises(HomeUnusable, match="is not a folder"):
        mulligan.run(good(), home="file")


def test_a_home_is_a_folder_or_an_open_home(folder: Path):
    with mulligan.open(folder / "runs", by="Ada") as home:
        mulligan.run(good(), home=home)
        home.run(good())
    mulligan.run(good(), home="runs")

    assert [run.id for run in mulligan.open("runs").runs()] == [3, 2, 1]
    assert mulligan.open("runs").folder == folder / "runs"


def test_runs_stay_where_they_are_if_the_program_goes_to_another_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    run = mulligan.run(bad())
    (folder / "elsewhere").mkdir()

    monkeypatch.chdir("elsewhere")

    assert run.status == "failed"
    assert not Path(".mulligan").exists()


def test_runs_can_be_used_after_their_home_was_closed():
    with mulligan.open() as home:
        run = home.run(bad())
    home.close()

    assert (run.status, run.steps["s"].attempts[0].status, home.runs()) == ("failed", "failed", [run])


def test_a_store_on_a_server_holds_the_runs(store_schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    with mulligan.open() as home:
        run = home.run(good(), key="k")
        handle = home.start(asking())

        assert (run.status, handle.status) == ("completed", "running")
        assert (home.runs(), repr(home)) == ([handle, run], "<Home this store>")


# -- waiting ---------------------------------------------------------------------------------------------------------


def drive_in_a_thread(run_id: int) -> threading.Thread:
    thread = threading.Thread(target=lambda: mulligan.open().get(run_id).resume())
    thread.start()
    return thread


def test_a_run_that_another_drives_is_waited_for():
    with mulligan.open() as home:
        handle = home.start(good(), key="2026-11-16")
        thread = drive_in_a_thread(handle.id)

        assert handle.wait(timeout="1m") is handle

    assert handle.status == "completed"
    thread.join()


def test_a_wait_ends_with_its_time():
    handle = mulligan.open().start(good())

    with pytest.raises(TimeoutError) as timed_out:
        handle.wait(timeout=0.01)

    assert isinstance(timed_out.value, WaitTimedOut)
    assert str(timed_out.value) == "run 1 has not ended in 0.01: it is running"


def test_a_wait_says_that_the_run_needs_a_person():
    run = mulligan.run(asking())

    with pytest.warns(RunHeldUp, match="run 1 waits: 'ask' waits for an approval; answer"), pytest.raises(WaitTimedOut):
        run.wait(timeout=timedelta(milliseconds=10))


def test_a_wait_for_a_run_that_nothing_drives_ends_and_says_how_to_drive_it():
    handle = mulligan.open().start(good())

    with pytest.raises(RunNotDriven, match="run 1 waits: nothing is running it; start a worker with: mulligan worker"):
        handle.wait()


@pytest.mark.parametrize("timeout", ["soon", True, -1, [1]])
def test_a_wait_for_no_duration_is_refused(timeout: object):
    handle = mulligan.open().start(good())

    with pytest.raises(InputInvalid, match="is not a duration"):
        handle.wait(timeout=timeout)  # type: ignore[arg-type]


def test_a_wait_may_end_where_a_person_is_needed():
    run = mulligan.run(asking())

    assert run.wait("1m", until="person").status == "waiting"


# -- decisions -------------------------------------------------------------------------------------------------------


def test_what_waits_for_a_person_is_listed_and_answered():
    mulligan.run(asking())
    with mulligan.open(by="Ada") as home:
        (asked,) = home.pending()

        run = home.approve(asked.run_id, "ask", "fine")

        assert (asked.step, run.is_driven, home.pending()) == ("ask", False, [])
        with pytest.raises(StepNotWaitingForApproval):
            home.refuse(asked.run_id, "ask", "too late")
        # Its last step has ended with the answer, so the run has too.
        assert run.wait("1m").status == "completed"


@pytest.mark.parametrize(("drive", "status"), [(None, "completed"), (True, "completed"), (False, "running")])
def test_an_answer_drives_on_a_run_that_nothing_else_drives(drive: bool | None, status: str):
    flow = Workflow("w").step("ask", approve="go?").step("after", needs=["ask"], shell="true")
    mulligan.run(flow)
    run = mulligan.open().get(1)

    run.approve("ask", "fine", drive=drive)

    assert run.status == status


def test_a_parked_step_is_classified_for_another_process():
    run = mulligan.run(Workflow("w").step("s", shell="exit 3", triage=True).step("t", needs=["s"], shell="true"))
    with mulligan.open() as home:
        home.classify(run.id, "s", "fail", "hopeless")

    assert (run.status, run.failures[0].exit_code) == ("failed", 3)


def test_a_run_that_nobody_drives_is_cancelled_here_with_its_end():
    flow = Workflow("w").step("s", shell="true").end(shell="echo over > ended")
    run = mulligan.open().start(flow)

    run.cancel(reason="not needed")

    assert (run.status, run.reason, Path("ended").read_text()) == ("cancelled", "not needed", "over\n")
    with pytest.raises(mulligan.RunFailed, match="run 1 was cancelled: not needed") as failed:
        run.raise_for_status()
    assert failed.value.status == "cancelled"


def test_a_run_is_paused_and_resumed():
    run = mulligan.open().start(good())

    run.pause(reason="lunch")
    assert (run.status, run.reason, run.pending[0].kind) == ("paused", "lunch", "paused")

    assert run.resume().status == "completed"


def test_a_run_is_resumed_for_one_step_after_the_other():
    run = mulligan.open().start(good().step("t", needs=["s"], shell="true"))
    run.pause()

    stepped = run.resume(steps=1, reason="look")
    assert (stepped.status, stepped.reason) == ("paused", "1 step ran, as asked")
    assert [one.status for one in run.steps.values()][:2] == ["completed", "ready"]
    for wrong in ({"steps": 0}, {"step": "t", "steps": 1}):
        with pytest.raises(InputInvalid, match="`steps` is how many"):
            run.resume(**wrong)

    assert run.resume(steps=1).status == "completed"


def test_a_step_is_paused_and_resumed():
    run = mulligan.run(asking().step("s", needs=["ask"], shell="true"))
    run.pause("s")
    run.approve("ask", "fine")
    assert (run.status, run.steps["s"].status) == ("waiting", "ready")

    run.resume("s")

    assert run.status == "completed"


# -- threads, loops, processes ---------------------------------------------------------------------------------------


def test_two_threads_run_two_workflows_at_once():
    found: dict[str, mulligan.Run] = {}

    def work(name: str) -> None:
        found[name] = mulligan.run(good(name))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {(name, run.workflow, run.status) for name, run in found.items()} == {
        ("one", "one", "completed"),
        ("two", "two", "completed"),
    }


def test_an_open_home_and_its_runs_are_used_from_another_thread():
    seen: list[object] = []
    with mulligan.open() as home:
        run = home.run(bad())
        thread = threading.Thread(target=lambda: seen.extend([run.status, home.runs(), run.steps["s"].status]))
        thread.start()
        thread.join()

    assert seen == ["failed", [run], "failed"]


def test_a_coroutine_runs_a_workflow_directly_or_in_a_thread():
    async def program() -> list[str]:
        direct = mulligan.run(good())
        threaded = await asyncio.gather(*(asyncio.to_thread(mulligan.run, good(), parallel=1) for _ in range(2)))
        return [direct.status, *(run.status for run in threaded)]

    assert asyncio.run(program()) == ["completed"] * 3


def test_a_forked_process_uses_the_open_home_of_its_parent():
    with mulligan.open() as home:
        run = home.run(bad())
        child = os.fork()
        if not child:
            try:
                again = home.run(good())
                home.close()
                os._exit(0 if (run.status, again.status) == ("failed", "completed") else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert [one.status for one in home.runs()] == ["completed", "failed"]


def test_a_step_runs_a_workflow_of_its_own():
    code = """
def main():
    import mulligan
    inner = mulligan.Workflow("inner").step("s", shell="echo deep").outputs(said="$" + "{steps.s.output}")
    return mulligan.run(inner).outputs
"""
    run = mulligan.run(Workflow("outer").step("nest", python=code))

    assert (run.status, run.steps["nest"].output) == ("completed", {"said": "deep"})
    assert [one.workflow for one in mulligan.open().runs()] == ["inner", "outer"]
