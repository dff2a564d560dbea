"""One trial: a run with a fault in one of its processes, resumed until it ends; and what is wrong then."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.service import Service
from mulligan.testing.postgres import PostgresServer, own_schema, own_server
from proof.crashes import scenarios, short_writes
from proof.crashes.command_runner import CommandExit, CommandRunner, command_runner
from proof.crashes.faults import Fault, Trial
from proof.crashes.moving import Follower
from proof.crashes.outcome_checks import TrialOutcome, complaints, steady
from proof.crashes.proxy import LossyProxy
from proof.crashes.workflow import YAML, Subject, done, written
from proof.stage import Stage

# How often a run is taken up at most until it has to be at its end.
RESUMES_MAX = 4
# What no user may ever see.
UNSAID = ("Traceback (most recent call last)", "internal.bug")


# What a disk refuses may fail a step, if it is said in words: another round makes up for it.
REFUSING = {"disk", "call", "supervisor", "short"}


class Tried(NamedTuple):
    """The result of a trial: whether the fault happened, and what is wrong."""

    has_happened: bool
    complaints: list[str]


class Theatre:
    """Where trials are held: a folder, and a server that is started when the first one asks for it.

    A server that is there already, behind `server_url`, is good for all trials in which none dies. `defect` breaks the
    processes around a run on purpose: "module:function", called in each of them.
    """

    def __init__(self, folder: Path, server_url: str = "", subject: Subject = YAML, defect: str = "") -> None:
        self._folder = folder
        self._subject = subject
        self._server_url = server_url
        self._open = ExitStack()
        self._number = 0
        self._cast = scenarios.Cast(folder, self._open, defect)
        self._expected: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Theatre:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @cached_property
    def _mortals(self) -> CommandRunner:
        return self._open.enter_context(command_runner(Stage(self._folder), self._folder))

    @cached_property
    def _short_mortals(self) -> CommandRunner:
        """Return the processes whose writes can be shortened."""
        preloaded = {"LD_PRELOAD": str(short_writes.built(self._folder))}
        return self._open.enter_context(command_runner(Stage(self._folder), self._folder, preloaded))

    @cached_property
    def _server(self) -> PostgresServer:
        return self._open.enter_context(own_server())

    # -- trials

    def hold(self, trial: Trial) -> Tried:
        """Hold one trial. Where all was well, nothing of it is left."""
        if trial.troubles[0].kind in scenarios.SCENARIOS:
            return self._hold_beside_others(trial)
        expected = self._undisturbed(trial.store)
        with self._scene(trial) as scene:
            is_short = any(fault.kind == "short" for fault in trial.troubles)
            processes = self._short_mortals if is_short else self._mortals
            tried = Play(processes, scene, self._subject).held(trial, expected)
            if not tried.complaints:
                shutil.rmtree(scene.stage.folder)
        return tried

    def _hold_beside_others(self, trial: Trial) -> Tried:
        """One of the processes around a run dies, which are started again by the trial itself."""
        folders: list[Path] = []

        @contextmanager
        def stages() -> Iterator[Stage]:
            with self._scene(Trial(trial.store, ())) as scene:
                folders.append(scene.stage.folder)
                yield scene.stage

        has_happened, wrong = scenarios.held(self._cast, stages, trial.store, trial.troubles[0])
        for folder in folders if not wrong else ():
            shutil.rmtree(folder)
        return Tried(has_happened, wrong)

    def _undisturbed(self, store: str) -> dict[str, Any]:
        """How a run ends to which nothing happens."""
        if store not in self._expected:
            with self._scene(Trial(store, ())) as scene:
                ended = self._mortals.run(scene.stage, "run", written(scene.stage, self._subject), "--json")
                for words in _next_commands(self._subject, ended.shown["run_id"]):
                    ended = self._mortals.run(scene.stage, *words)
                begun = done(scene.stage)
                found = Counter({key: times for key, times in begun.items() if key[0] not in self._subject.may_begin})
                assert (ended.code, found) == (self._subject.code, self._subject.done_once), ended.said
            self._expected[store] = steady(ended.shown)
        return self._expected[store]

    # -- scenes

    @contextmanager
    def _scene(self, trial: Trial) -> Iterator[Scene]:
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        if trial.store == "sqlite":
            yield Scene(Stage(folder))
            return
        lost = [fault.nth for fault in trial.troubles if fault.kind == "answer"]
        with own_schema(self._server_url or self._server.url) as url, LossyProxy(url, *lost) as way:
            stage = Stage(folder, f"{way.url if lost else url}&application_name={uuid4().hex}")
            if any(fault.kind == "server" for fault in trial.troubles):
                stage.environment["POSTMASTER"] = str(self._postmaster)
                yield Scene(stage, self._keep_server_up)
            else:
                yield Scene(stage, way=way)

    @property
    def _postmaster(self) -> Path:
        return self._server.folder / "data" / "postmaster.pid"

    def _keep_server_up(self) -> None:
        if not self._postmaster.exists():
            self._server.start()


class Scene(NamedTuple):
    """A stage for one trial, what is to be done while its processes run, and the way on which an answer may be lost."""

    stage: Stage
    meanwhile: Callable[[], object] = lambda: None
    way: LossyProxy | None = None


class Play:
    """One trial on its stage."""

    def __init__(self, processes: CommandRunner, scene: Scene, subject: Subject) -> None:
        self._processes = processes
        self._subject = subject
        self._scene = scene
        self._stage = scene.stage
        self._said: list[str] = []
        self._has_happened = False
        # Whether the run has no driver since its last one was killed.
        self._is_last_dead = False

    def held(self, trial: Trial, expected: dict[str, Any]) -> Tried:
        first, *later = trial.troubles
        follower = Follower(self._stage) if first.kind == "move" else None
        if follower is not None:
            self._scene = self._scene._replace(meanwhile=follower.look)
        words = ["run", written(self._stage, self._subject), "--json"]
        if self._subject.correction or self._subject.events:
            words = _next_commands(self._subject, self._run(*words).shown["run_id"])[0]
        self._run(*words, fault=first)
        lost = [] if follower is None else follower.arrive()
        with self._stage.service() as service:
            for fault in later:
                self._go_on(service, fault)
            ended = self._brought_to_its_end(service)
            wrong = self._looked_at(service, ended, expected, is_refused=_is_refused(trial))
        return Tried(self._has_happened, [*lost, *wrong, *self._unsaid()])

    def _looked_at(
        self, service: Service, ended: CommandExit, expected: dict[str, Any], *, is_refused: bool
    ) -> list[str]:
        """What is wrong. Where a disk refused something a step may have failed, in words; then another round helps."""
        if is_refused and ended.shown.get("status") == "failed":
            ended = self._run("retry", str(ended.shown["run_id"]), "--follow", "--json")
        if not ended.shown:
            return [f"its end is not shown: {ended.code}: {ended.said}"]
        if is_refused or self._is_last_dead:
            # Killed, or not heard, when the run was over already: whoever comes next buries the dead.
            with open_driver(service.reader):
                pass
        done_once = self._subject.done_once
        return complaints(
            TrialOutcome(
                self._stage,
                service,
                ended.shown,
                expected,
                is_left_to_gc=is_refused,
                done_once=done_once,
                has_askers=bool(self._subject.events),
            )
        )

    def _brought_to_its_end(self, service: Service) -> CommandExit:
        for _ in range(RESUMES_MAX):
            ended = self._go_on(service)
            if ended.shown.get("status") in RUN_ENDED:
                break
        return ended

    def _go_on(self, service: Service, fault: Fault | None = None) -> CommandExit:
        """Resume the run, or start it if the first process did not get that far; otherwise show it."""
        runs = [run for run in service.reader.runs(limit=100) if run.parent_run_id is None]
        if not runs:
            return self._run("run", self._subject.file, "--json", fault=fault)
        run_id, has_ended = runs[0].run_id, runs[0].status in RUN_ENDED
        is_corrected = self._subject.correction and service.reader.state(run_id).run.round > 1
        if not (has_ended if self._subject.events else is_corrected) and (
            commands := _next_commands(self._subject, run_id)
        ):
            return [self._run(*words, fault=fault) for words in commands][-1]
        return self._run("show" if has_ended else "resume", str(run_id), "--json", fault=fault)

    def _run(self, *words: str, fault: Fault | None = None) -> CommandExit:
        asked = fault if fault is not None and fault.kind != "answer" else None
        ended = self._processes.run(self._stage, *words, fault=asked, meanwhile=self._scene.meanwhile)
        self._has_happened |= ended.has_happened
        if self._scene.way is not None:
            self._has_happened |= self._scene.way.has_lost
            self._scene.way.heal()
        self._said.append(ended.said)
        if words[0] != "show":
            self._is_last_dead = ended.code == -signal.SIGKILL
        return ended

    def _unsaid(self) -> list[str]:
        return [f"a user sees: {said}" for said in self._said if any(words in said for words in UNSAID)]


def _next_commands(subject: Subject, run_id: int) -> list[list[str]]:
    """What follows the first command: the correction of what has failed, or the events that are sent, each once."""
    if subject.correction:
        return [["retry", str(run_id), "--file", subject.correction, "--follow", "--json"]]
    return [["send", str(run_id), "paid", event, "--once", f"the {event}", "--json"] for event in subject.events]


def _is_refused(trial: Trial) -> bool:
    return bool({fault.kind for fault in trial.troubles} & REFUSING)
