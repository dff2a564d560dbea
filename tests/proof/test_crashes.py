"""Crashes, for a moment: a sample of what `make crashes` does at length, and whether it would notice anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.support.nightly import IS_NIGHTLY, sample

from mulligan.ports import FAULT_POINTS
from mulligan.service.home import DATABASE
from proof.crashes import calls, remote_trials, short_writes
from proof.crashes.__main__ import main
from proof.crashes.command_runner import command_runner
from proof.crashes.defects import DEFECTS, unfound
from proof.crashes.faults import STORES, Fault, Trial, parsed
from proof.crashes.outcome_checks import TrialOutcome, complaints, no_lock_is_held, nothing_lies_about, steady
from proof.crashes.proxy import Answers
from proof.crashes.scenarios import SCENARIOS
from proof.crashes.sweeps import pairs
from proof.crashes.trials import Theatre
from proof.crashes.workflow import FLOW, SECRET, written
from proof.stage import Stage


def expect_all_is_well(theatre: Theatre, *names: str, at_night: tuple[str, ...] = ()) -> None:
    """Each of these trials is met by what it is about, and nothing is wrong afterwards."""
    tried = {name: theatre.hold(parsed(name)) for name in (*names, *(at_night if IS_NIGHTLY else ()))}

    assert {name: found.complaints for name, found in tried.items() if found.complaints} == {}
    assert [name for name, found in tried.items() if not found.has_happened] == []


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory, server_url: str) -> Iterator[Theatre]:
    """For trials in which no server dies: each has a folder and a schema of its own, and forks from one process."""
    with Theatre(tmp_path_factory.mktemp("theatre"), server_url) as theatre:
        yield theatre


@pytest.fixture(scope="module")
def flow_theatre(tmp_path_factory: pytest.TempPathFactory, server_url: str) -> Iterator[Theatre]:
    """The same for the workflow that is written in Python."""
    with Theatre(tmp_path_factory.mktemp("flow"), server_url, FLOW) as theatre:
        yield theatre


# -- a sample, which is larger at night ------------------------------------------------------------------------------

STORES_BY_DAY = [pytest.param(store, marks=[] if store == "sqlite" else pytest.mark.nightly) for store in STORES]


@pytest.mark.parametrize("store", STORES_BY_DAY)
def test_a_run_that_is_killed_anywhere_and_resumed_comes_to_the_same_end(theatre: Theatre, store: str) -> None:
    # Each point early on one store and late on the other, and another pass of each: the whole of the run is met.
    offset = STORES.index(store)
    moments = [(point, (2 if (number + offset) % 2 else 10) + number) for number, point in enumerate(FAULT_POINTS)]
    trials = [f"{store}/kill:{point}@{nth}" for point, nth in moments]
    # By day each point on one of them.
    by_day = [trials[:3], trials[3:]][offset]

    expect_all_is_well(theatre, *by_day, at_night=tuple(trial for trial in trials if trial not in by_day))


@pytest.mark.parametrize("store", STORES_BY_DAY)
def test_a_run_that_is_killed_twice_comes_to_the_same_end(theatre: Theatre, store: str) -> None:
    expect_all_is_well(
        theatre,
        f"{store}/kill:after_commit@4/kill:before_commit@2",
        at_night=(f"{store}/kill:before_report@8/kill:after_lease@1",),
    )


@pytest.mark.parametrize("store", STORES_BY_DAY)
def test_a_flow_that_is_killed_and_resumed_comes_to_the_same_end(flow_theatre: Theatre, store: str) -> None:
    # Within a map, a handler, a child flow that fails, its undo, and a step that runs again after a repair.
    expect_all_is_well(flow_theatre, f"{store}/kill:after_commit@9", at_night=(f"{store}/kill:before_report@14",))


@pytest.mark.nightly
def test_a_home_that_is_moved_while_a_run_is_driven_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(theatre, "sqlite/move:before_report@9")


def test_a_disk_that_fails_anywhere_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(
        theatre,
        *("sqlite/disk:write.half@101", "sqlite/disk:sync.torn@25"),
        at_night=(
            # Half of the first page of the file; by day, of one in the middle of a run.
            *("sqlite/disk:write.die@1", "sqlite/disk:lock.error@3", "sqlite/disk:sync.error@20"),
            "sqlite/disk:open.error@1",
            *("sqlite/disk:write.power@70", "sqlite/disk:truncate.die@2"),
        ),
    )


def test_a_server_that_is_cut_off_or_whose_answer_is_lost_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(
        theatre,
        *("postgres/cut:after_commit@9", "postgres/answer:lost@30"),
        at_night=("postgres/cut:before_commit@3", "postgres/answer:lost@71"),
    )


@pytest.mark.skipif(not calls.is_there(), reason="there is no strace here")
def test_a_system_call_that_fails_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(
        theatre,
        "sqlite/call:fsync.EIO@1",
        at_night=("sqlite/call:rename.ENOSPC@1", "sqlite/call:rename.KILL@1", "sqlite/call:write.EIO@9"),
    )


@pytest.mark.skipif(not calls.is_there(), reason="there is no strace here")
def test_a_supervisor_that_is_killed_or_refused_something_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(
        theatre,
        "sqlite/supervisor:wait4.KILL@9",
        at_night=("sqlite/supervisor:clone.EAGAIN@3", "sqlite/supervisor:read.EIO@20"),
    )


@pytest.mark.skipif(not short_writes.is_there(), reason="there is no C compiler here")
def test_a_write_that_is_done_by_half_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(theatre, "sqlite/short:pwrite64.half@50", at_night=("sqlite/short:write.full@3",))


# -- the processes around a run: see `proof.crashes.scenarios` ---------------------------------------------------------


def test_a_sender_that_is_killed_loses_no_notice_and_starts_no_instant_twice(theatre: Theatre) -> None:
    expect_all_is_well(theatre, "sqlite/background:after_send@2", at_night=("postgres/background:after_send@2",))


def test_a_remote_worker_that_is_killed_costs_nothing(theatre: Theatre) -> None:
    expect_all_is_well(theatre, "sqlite/remote:before_report@4")


@pytest.mark.nightly
@pytest.mark.skipif(not remote_trials.can_mount(), reason="only root may mount a small disk")
def test_a_remote_worker_whose_disk_is_full_for_a_while_fails_nothing(theatre: Theatre) -> None:
    expect_all_is_well(theatre, "sqlite/full_disk:full@9")


@pytest.mark.nightly
def test_a_worker_that_is_killed_while_forks_copy_their_worktrees_loses_and_mixes_nothing(theatre: Theatre) -> None:
    expect_all_is_well(theatre, "sqlite/worktrees:before_report@2")


def test_every_scenario_has_a_deliberate_defect_that_it_must_find() -> None:
    assert {parsed(defect.trial).troubles[0].kind for defect in DEFECTS} == set(SCENARIOS)


@pytest.mark.nightly
def test_a_server_that_forgets_the_keys_of_starts_is_found(tmp_path: Path) -> None:
    (defect,) = (one for one in DEFECTS if one.name == "forget_keys")

    with Theatre(tmp_path, defect=defect.function) as broken:
        missed = unfound(lambda name, _: broken.hold(parsed(name)).complaints, (defect,))

    assert missed == []


def test_a_defect_that_no_trial_complains_about_is_missed() -> None:
    missed = unfound(lambda name, defect: ["nothing_overlapped: of another law"], DEFECTS[:1])

    assert [text.partition(" by ")[0] for text in missed] == [
        "sqlite/http_server:after_request@6 does not find 'forget_keys'"
    ]


# -- how trials are named --------------------------------------------------------------------------------------------


def test_a_trial_is_spelled_as_it_is_read() -> None:
    name = "sqlite/kill:after_commit@12/disk:write.torn@3"

    trial = parsed(name)

    assert trial == Trial("sqlite", (Fault("kill", "after_commit", 12), Fault("disk", "write.torn", 3)))
    assert str(trial) == name


@pytest.mark.parametrize(
    "name",
    ["", "sqlite", "mysql/kill:after_commit@1", "sqlite/kill:after_commit", "sqlite/kill:after_commit@0", "kills!"],
)
def test_what_is_no_trial_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no trial: write it like sqlite/kill:after_commit@12"):
        parsed(name)


def test_pairs_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    assert list(pairs(5, 1)) == list(pairs(5, 1))
    assert list(pairs(5, 1)) != list(pairs(5, 2))


def test_answers_of_a_server_are_cut_where_they_end_however_they_come() -> None:
    ready, row = b"Z\0\0\0\x05I", b"D\0\0\0\x08abcd"
    said = row + ready + row + ready + row
    expected = [row + ready, row + ready]

    for size in range(1, len(said)):
        answers = Answers()
        pieces = [answers.fed(said[at : at + size]) for at in range(0, len(said), size)]
        flat = [piece for found in pieces for piece in found]
        assert b"".join(data for data, _ in flat) == said
        assert sum(is_whole for _, is_whole in flat) == len(expected)


# -- what would be found ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict]]:
    """A run that has ended in order, and what was shown of it."""
    folder = tmp_path_factory.mktemp("played")
    stage = Stage(folder)
    with command_runner(stage, folder) as processes:
        ended = processes.run(stage, "run", written(stage), "--json")
    assert ended.code == 0, ended.said
    yield stage, ended.shown


def copied(played: tuple[Stage, dict], folder: Path) -> Stage:
    """The same home and journal elsewhere, to be spoiled."""
    stage = Stage(folder)
    subprocess.run(["cp", "-r", f"{played[0].folder}/.", folder], check=True)
    return stage


def write(stage: Stage, sql: str) -> None:
    file = apsw.Connection(os.fspath(stage.home.folder / DATABASE))
    file.execute(sql)
    file.close()


def without_an_act(stage: Stage) -> None:
    lines = [line for line in stage.journal.read_text().splitlines(True) if " repair " not in line]
    stage.journal.write_text("".join(lines))


def with_an_act_twice(stage: Stage) -> None:
    lines = stage.journal.read_text().splitlines(True)
    stage.journal.write_text("".join([*lines, *lines[:2]]))


def without_an_end(stage: Stage) -> None:
    lines = stage.journal.read_text().splitlines(True)
    stage.journal.write_text("".join(line for line in lines if not line.startswith("end count ")))


def with_an_overlap(stage: Stage) -> None:
    text = stage.journal.read_text()
    stage.journal.write_text(text + text.splitlines()[0].replace("start", "overlap", 1) + "\n")


def with_a_half_written_file(stage: Stage) -> None:
    (stage.home.folder / "artifacts" / ".half-12").touch()


def with_a_secret_in_a_log(stage: Stage) -> None:
    (stage.home.folder / "runs" / "1" / "logs" / "x#1.out").write_text(f"it is {SECRET}\n")


SPOILED: tuple[tuple[Callable[[Stage], object], set[str]], ...] = (
    (lambda stage: None, set()),
    (without_an_act, {"everything_was_done", "every_result_was_worked_for"}),
    (with_an_act_twice, {"nothing_was_done_twice", "every_result_was_worked_for"}),
    (without_an_end, {"every_result_was_worked_for"}),
    (with_an_overlap, {"nothing_overlapped"}),
    (with_a_half_written_file, {"nothing_lies_about"}),
    (with_a_secret_in_a_log, {"no_secret_was_written"}),
    (lambda stage: (stage.home.folder / "tmp123").touch(), {"nothing_lies_about"}),
    # A fact that is gone: the tables say more than the log.
    (
        lambda stage: write(stage, "DELETE FROM events WHERE id = (SELECT max(id) FROM events)"),
        {"the_logs_keep_the_promises", "the_logs_replay_to_the_tables"},
    ),
    (lambda stage: write(stage, "UPDATE runs SET holder = 'somebody'"), {"the_store_keeps_nothing_of_the_past"}),
)


@pytest.mark.parametrize(("spoil", "laws"), sample(SPOILED, 5))
def test_whatever_is_spoiled_is_found(
    tmp_path: Path, played: tuple[Stage, dict], spoil: Callable[[Stage], object], laws: set[str]
) -> None:
    stage, shown = copied(played, tmp_path), played[1]
    spoil(stage)

    with stage.service() as service:
        found = complaints(TrialOutcome(stage, service, shown, steady(shown)))

    assert {sentence.partition(":")[0] for sentence in found} == laws


def test_another_outcome_is_found(tmp_path: Path, played: tuple[Stage, dict]) -> None:
    stage, shown = copied(played, tmp_path), played[1]

    with stage.service() as service:
        found = complaints(TrialOutcome(stage, service, shown, {**steady(shown), "outputs": {"letters": 1}}))

    assert found == [
        "the_outcome_is_as_undisturbed: 'outputs' is {'letters': 70000, 'deployed': 'deployed'}, "
        "and undisturbed it is {'letters': 1}"
    ]


def test_a_process_that_runs_on_and_a_lock_that_is_held_are_found(tmp_path: Path, played: tuple[Stage, dict]) -> None:
    stage, shown = copied(played, tmp_path), played[1]
    path = stage.home.locks / "somebody.lock"
    path.parent.mkdir(exist_ok=True)
    holding = f"import fcntl; file = open({str(path)!r}, 'w'); fcntl.flock(file, 2); print(1, flush=True); input()"

    with stage.start_program("-c", holding, stdin=subprocess.PIPE) as holder, stage.service() as service:
        assert holder.stdout is not None and holder.stdout.readline() == "1\n"
        left = stage.leftovers()
        found = complaints(TrialOutcome(stage, service, shown, steady(shown)), [no_lock_is_held, nothing_lies_about])
        holder.kill()

    assert [words.partition(":")[0] for words in left] == [str(holder.pid)]
    assert found == [
        f"no_lock_is_held: '{path}' is held",
        "nothing_lies_about: 'workers/somebody.lock' is left in the home",
    ]


# -- the program -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_program_counts_and_says_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    # Within the requests of a client, and of a program outside: the server dies when it has started a run, or has sent
    # an event, and not answered.
    code = main(["sqlite/http_server:after_request@8", "sqlite/http_server:after_request@24"])

    said = capsys.readouterr().out.splitlines()
    assert code == 0
    assert said[0].startswith("2 trials in ") and said[0].endswith(" minutes: 0 went wrong")
    assert said[1] == "       2 sqlite http_server"


@pytest.mark.skipif(not short_writes.is_there(), reason="there is no C compiler here")
def test_a_write_is_shortened_once_and_then_there_is_no_room_for_a_while(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from proof.crashes import short_writes\n"
        "short_writes.expect(sys.argv[1], 2, Path(sys.argv[2]))\n"
        "def wrote():\n"
        "    try: return os.write(int(sys.argv[3]), b'four')\n"
        "    except OSError as error: return error.strerror\n"
        "print([wrote() for _ in range(6)])"
    )
    environment = {**Stage(tmp_path).environment, "LD_PRELOAD": str(short_writes.built(tmp_path))}

    def said(what: str) -> str:
        with open(os.devnull, "wb") as nowhere:
            fd = nowhere.fileno()
            command = [sys.executable, "-c", program, what, tmp_path / "met", str(fd)]
            return subprocess.check_output(command, env=environment, pass_fds=[fd], text=True)

    full = "'No space left on device'"
    assert said("write.half") == "[4, 2, 4, 4, 4, 4]\n"
    assert said("write.full") == f"[4, 2, {full}, {full}, {full}, 4]\n"
    assert (tmp_path / "met").exists()


def test_on_a_disk_that_may_fail_the_log_goes_into_the_file_often(tmp_path: Path) -> None:
    program = (
        "import apsw, sys; from proof.crashes.disk import FaultyDisk\n"
        "disk = FaultyDisk('truncate.error', 1, lambda: print('met'))\n"
        "file = apsw.Connection(sys.argv[1])\n"
        "for text in ('PRAGMA journal_mode = WAL', 'PRAGMA wal_autocheckpoint = 2000', 'CREATE TABLE t (x)'):\n"
        "    file.execute(text)\n"
        "for _ in range(50): file.execute('INSERT INTO t VALUES (randomblob(4000))')"
    )

    command = [sys.executable, "-c", program, tmp_path / "file.db"]
    done = subprocess.run(command, env=Stage(tmp_path).environment, capture_output=True, text=True, check=False)

    assert done.stdout == "met\n"


def test_a_disk_that_fails_is_the_disk_of_its_process(tmp_path: Path) -> None:
    program = (
        "import apsw, sys; from proof.crashes.disk import FaultyDisk\n"
        "disk = FaultyDisk('write.full', 3, lambda: print('met'))\n"
        "apsw.Connection(sys.argv[1]).execute('CREATE TABLE t (x)')"
    )
    stage = Stage(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "file.db"],
        env=stage.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "met\n"
    assert done.stderr.splitlines()[-1] == "apsw.FullError: database or disk is full"
