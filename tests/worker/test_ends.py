"""How tasks are made to end: time, memory, a stop, a watchdog. Always the whole tree, however it hides."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.work import Announcements, Work, is_alive, watched

from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, TaskEnded, TaskInterrupted

MIB = 1 << 20
LONG = "sleep 1000"

# What a process may do to get away from whoever started it. Each announces itself, then stays.
ESCAPES = {
    # a child like any other
    "child": "bash -c 'echo $$ > {pipe}; sleep 1000; :' &",
    # a session of its own
    "setsid": "setsid bash -c 'echo $$ > {pipe}; sleep 1000; :' &",
    # a daemon: its parent is gone, its session is new
    "daemon": "setsid -f bash -c 'echo $$ > {pipe}; sleep 1000; :';",
    # and nothing in its environment tells whose it is
    "stranger": "env -i /usr/bin/setsid -f /bin/bash -c 'echo $$ > {pipe}; /bin/sleep 1000; :';",
    # it does not listen
    "deaf": "setsid -f bash -c 'trap \"\" TERM INT HUP; echo $$ > {pipe}; while :; do sleep 1000; done';",
}


def escape(name: str, announcements: Announcements) -> str:
    return ESCAPES[name].format(pipe=announcements.path)


# -- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ESCAPES)
def test_what_a_task_left_in_the_background_is_dead_when_its_end_is_told(
    work: Work, announcements: Announcements, how: str
) -> None:
    lease = work.shell(f"{escape(how, announcements)} read go < {work.folder}/go; echo done")
    work.run_shell(f"mkfifo {work.folder}/go")
    work.start(lease)
    (pid,) = announcements.numbers(1)
    (work.folder / "go").write_text("\n")

    (report,) = work.reports()

    assert not is_alive(pid)
    assert isinstance(report, TaskEnded)
    assert (report.outcome, report.output) == (Outcome(), "done")


def test_a_daemon_of_one_task_outlives_the_end_of_another(work: Work, announcements: Announcements) -> None:
    first = work.shell(f"{escape('daemon', announcements)} {LONG}")
    work.start(first)
    (pid,) = announcements.numbers(1)

    work.run_shell("echo other")

    assert is_alive(pid)
    work.executor.stop(first.token, 0.0)
    work.reports()
    assert not is_alive(pid)


# -- stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ESCAPES)
def test_a_stop_ends_the_whole_tree(work: Work, announcements: Announcements, how: str) -> None:
    lease = work.shell(f"{escape(how, announcements)} {LONG}; :")
    work.start(lease)
    (pid,) = announcements.numbers(1)

    work.executor.stop(lease.token, 0.05)
    (report,) = work.reports()

    assert not is_alive(pid)
    assert isinstance(report, TaskEnded)
    assert report.outcome.signal == signal.SIGTERM


def test_a_stopped_task_has_its_grace_and_that_it_was_stopped_is_told(work: Work, announcements: Announcements) -> None:
    text = f"trap 'echo tidied; exit 0' TERM; echo 1 > {announcements.path}; while :; do sleep 0.01; done"
    lease = work.shell(text)
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, 1000.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (report.outcome, report.output) == (Outcome(is_stopped=True), "tidied")


def test_what_a_stopped_task_has_started_has_the_rest_of_the_grace(work: Work, announcements: Announcements) -> None:
    pipe = announcements.path
    slow = f"trap 'echo tidied > {pipe}; exit' TERM; echo 1 > {pipe}; while :; do sleep 0.01; done"
    lease = work.shell(f"setsid -f bash -c '{slow.replace(chr(39), chr(34))}'; {LONG}; :")
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, 1000.0)
    work.reports()

    assert announcements.lines(1) == ["tidied"]


def test_a_task_that_is_suspended_hears_a_stop_too(work: Work, announcements: Announcements) -> None:
    lease = work.shell(f"echo $$ > {announcements.path}; kill -STOP $$; {LONG}")
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, 1000.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert report.outcome.signal == signal.SIGTERM


def test_a_second_stop_shortens_the_grace(work: Work, announcements: Announcements) -> None:
    lease = work.shell(f"trap '' TERM; echo 1 > {announcements.path}; while :; do sleep 0.01; done")
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(lease.token, 1000.0)
    work.executor.stop(lease.token, 0.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert report.outcome.signal == signal.SIGKILL


def test_no_grace_at_all_lets_a_task_finish(work: Work) -> None:
    lease = work.shell(f"mkfifo go; read x < {work.folder}/go; echo finished")
    work.start(lease)
    work.wait_for((work.folder / "go").exists)

    work.executor.stop(lease.token, None)
    (work.folder / "go").write_text("\n")
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (report.outcome, report.output) == (Outcome(), "finished")


def test_a_stop_of_what_does_not_run_is_nothing(work: Work) -> None:
    work.executor.stop(99, 0.0)

    assert work.run_shell("echo fine").output == "fine"


def test_all_that_is_stopped_is_interrupted(work: Work, announcements: Announcements) -> None:
    shell = work.shell(f"echo 1 > {announcements.path}; {LONG}")
    python = work.python(
        "import time\ndef main(pipe):\n  open(pipe, 'w').write('1\\n'); time.sleep(1000)",
        {"pipe": str(announcements.path)},
    )
    work.start(shell, python)
    announcements.lines(2)

    work.executor.stop_all(1000.0)
    reports = work.reports(2)

    assert {(type(report), report.place) for report in reports} == {
        (TaskInterrupted, shell.task.place),
        (TaskInterrupted, python.task.place),
    }
    assert list(work.executor.running) == []


def test_what_had_ended_before_all_was_stopped_counts(work: Work) -> None:
    lease = work.shell("echo done")
    work.start(lease)
    (report,) = work.reports()

    work.executor.stop_all(0.0)

    assert isinstance(report, TaskEnded)
    assert work.executor.collect(0.0) == []


def test_what_is_dropped_is_dead_and_forgotten(work: Work, announcements: Announcements) -> None:
    shell = work.shell(f"echo said; {escape('deaf', announcements)} {LONG}")
    work.start(
        shell,
        work.python(
            "import os, time\ndef main(pipe):\n  open(pipe, 'w').write(f'{os.getpid()}\\n'); time.sleep(1000)",
            {"pipe": str(announcements.path)},
        ),
    )
    pids = announcements.numbers(2)

    work.executor.drop_all()

    assert [pid for pid in pids if is_alive(pid)] == []
    assert (list(work.executor.running), work.executor.collect(0.0)) == ([], [])
    assert work.executor.offer().cpus == 2
    assert work.log(shell).read_text() == "said\n"
    assert work.run_python("def main(): return 1").output == 1


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_task_that_takes_too_long_ends_with_its_whole_tree(work: Work, announcements: Announcements) -> None:
    said = f"echo said >&2; echo 0 > {announcements.path}"
    lease = work.shell(f"trap '' TERM; {escape('deaf', announcements)} {said}; sleep 1000; :")
    work.start(lease)
    pid = max(announcements.numbers(2))

    work.time_is_up(lease, 0.05)
    (report,) = work.reports()

    assert not is_alive(pid)
    assert isinstance(report, TaskEnded)
    assert report.outcome == Outcome(exit_code=None, signal=9, is_timed_out=True, stderr_tail="said\n")


def test_a_python_step_that_takes_too_long_ends(work: Work) -> None:
    report = work.run_python("import time\ndef main(): time.sleep(1000)", timeout=0.05)

    assert report.outcome == Outcome(exit_code=None, signal=15, is_timed_out=True)


@pytest.mark.parametrize("timeout", [None, 1000.0])
def test_the_time_of_the_visit_bounds_that_of_the_task(work: Work, timeout: float | None) -> None:
    report = work.run_shell(LONG, timeout=timeout, deadline=datetime.now(UTC) + timedelta(seconds=0.05))

    assert report.outcome.is_timed_out


def test_a_visit_whose_time_was_up_before_is_late_at_once(work: Work) -> None:
    report = work.run_shell(LONG, deadline=datetime.now(UTC) - timedelta(days=1))

    assert report.outcome.is_timed_out


# -- memory ----------------------------------------------------------------------------------------------------------

HUNGRY = "x = bytearray(300 << 20)"


def test_a_task_above_its_memory_is_killed_and_told_so(work: Work) -> None:
    report = work.run_shell(f"python3 -c 'import time; {HUNGRY}; time.sleep(1000)'; :", memory=150 * MIB)

    assert report.outcome.is_out_of_memory


def test_a_python_step_above_its_memory_is_killed_and_the_next_one_has_its_own_limit(work: Work) -> None:
    code = f"import time\ndef main(is_long):\n  {HUNGRY}\n  if is_long: time.sleep(1000)"

    first = work.run_python(code, {"is_long": True}, memory=150 * MIB)
    second = work.run_python(code, {"is_long": False})

    assert first.outcome.is_out_of_memory
    assert second.outcome == Outcome()


def test_a_kill_with_too_much_memory_measured_is_for_want_of_memory_whoever_killed(work: Work) -> None:
    report = work.run_shell(f"python3 -c 'import os; {HUNGRY}; os.kill(os.getpid(), 9)'; exit $?", memory=150 * MIB)

    assert report.outcome.is_out_of_memory


def test_a_kill_with_little_memory_measured_is_only_a_kill(work: Work) -> None:
    report = work.run_shell("kill -9 $$", memory=150 * MIB)

    assert report.outcome == Outcome(exit_code=None, signal=9)


def test_peak_memory_is_that_of_the_task(work: Work) -> None:
    shell = work.run_shell(f"python3 -c '{HUNGRY}'").usage["peak_memory"]
    small = work.run_shell("true").usage["peak_memory"]
    python = work.run_python(f"def main():\n  {HUNGRY}").usage["peak_memory"]
    after = work.run_python("def main(): pass").usage["peak_memory"]

    assert shell > 300 * MIB > small
    assert python > 300 * MIB > after


# -- the watchdog ----------------------------------------------------------------------------------------------------


# What runs is killed at two thirds of it: so long this process may be kept from renewing by a machine at its limit.
SHORT_LEASE_SECONDS = 1.5


def test_without_a_renewal_all_tasks_are_killed_and_lost_and_the_worker_lives(
    tmp_path: Path, announcements: Announcements
) -> None:
    work = Work(tmp_path, lease_seconds=SHORT_LEASE_SECONDS)
    lease = work.shell(f"{escape('deaf', announcements)} {LONG}")
    work.start(lease)
    work.renew_until(lambda: announcements.are_there)
    (pid,) = announcements.numbers(1)

    (report,) = work.reports()

    assert not is_alive(pid)
    assert report == LeaseExpired(report.at, lease.task.place, 1, work.name)
    work.executor.renew(time.monotonic())
    work.start(work.shell(f"echo alive > {announcements.path}; {LONG}"))
    work.renew_until(lambda: announcements.are_there)
    work.close()


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_what_is_ordered_when_the_lease_has_run_out_never_starts_and_is_lost(tmp_path: Path, kind: str) -> None:
    work = Work(tmp_path, lease_seconds=SHORT_LEASE_SECONDS)
    long_ago = time.monotonic() - SHORT_LEASE_SECONDS
    lease = work.lease(kind, {"text": "touch started", "code": "def main(): open('started', 'w')"})
    work.executor.renew(long_ago)

    work.start(lease)
    (report,) = work.reports()

    assert report == LeaseExpired(report.at, lease.task.place, 1, work.name)
    assert not (work.folder / "started").exists()
    assert work.executor.must_renew
    work.close()


def test_a_supervisor_that_takes_the_place_of_another_knows_when_the_lease_was_renewed(tmp_path: Path) -> None:
    work = Work(tmp_path, lease_seconds=SHORT_LEASE_SECONDS)
    work.executor.renew(time.monotonic() - SHORT_LEASE_SECONDS)
    pid = work.executor._supervisor.pid
    os.kill(pid, signal.SIGKILL)
    work.wait_for(lambda: work.executor._supervisor.pid != pid)

    work.start(work.shell("touch started"))
    (report,) = work.reports()

    assert isinstance(report, LeaseExpired)
    assert not (work.folder / "started").exists()
    work.close()


def test_a_worker_whose_lease_nobody_counts_need_not_renew_it(work: Work) -> None:
    work.executor.renew(0.0)

    assert not work.executor.must_renew


def test_without_a_renewal_what_waits_never_starts(tmp_path: Path, announcements: Announcements) -> None:
    work = Work(tmp_path, cpus=1, prefetch=1, lease_seconds=SHORT_LEASE_SECONDS)
    work.executor.renew(time.monotonic())
    work.run_shell("true")
    work.start(work.shell(f"echo 1 > {announcements.path}; {LONG}"), work.shell("touch started"))
    work.renew_until(lambda: announcements.are_there)

    reports = work.reports(2)

    assert [type(report) for report in reports] == [LeaseExpired, LeaseExpired]
    assert not (work.folder / "started").exists()
    work.close()


def test_a_renewed_lease_holds(tmp_path: Path) -> None:
    work = Work(tmp_path, lease_seconds=SHORT_LEASE_SECONDS)
    lease = work.shell(f"sleep {SHORT_LEASE_SECONDS}; echo done")
    work.start(lease)
    reports: list[object] = []

    while not reports:
        work.executor.renew(time.monotonic())
        reports = [report for _, report in work.executor.collect(0.02)]

    assert isinstance(reports[0], TaskEnded)
    assert reports[0].output == "done"
    work.close()


def test_closing_kills_all(work: Work, announcements: Announcements) -> None:
    work.start(work.shell(f"{escape('deaf', announcements)} {LONG}"))
    (pid,) = announcements.numbers(1)

    with watched(pid) as are_dead:
        work.executor.close()

        assert are_dead()
    work.executor = Work(work.home.parent).executor
