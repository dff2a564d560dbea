"""A rehearsal: run a workflow in memory with its real shell commands, leaving nothing behind.

For trying a workflow, and for tests of one's own workflows. Real language, core and processes; no store, so a
rehearsal that is killed is gone. It runs only `shell` commands (and what the engine does itself) and looks up no
secrets: it refuses what it cannot do before anything starts.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.fakes import action_kind, triager_name, with_fakes
from mulligan.core.deciding.lifecycle import expected_files
from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import FAKE, traits_of
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Command, Step, Workflow, all_commands, triager_of
from mulligan.core.state.scope import failure_view, fill_params
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, MulliganError, Refused
from mulligan.language.expressions import Cel, as_text
from mulligan.language.readers.fakes import read_fakes
from mulligan.language.shell.shell import environment_value
from mulligan.testing.history import History

STDERR_TAIL_CHARS = 2000
IDLE_SECONDS_MAX = 0.5


def rehearse(
    workflow: Workflow,
    folder: Path,
    *,
    inputs: dict[str, Any] | None = None,
    fakes: Mapping[str, Any] | None = None,
    slots: int = 4,
    watch: Callable[[State, list[e.Entry]], None] = lambda state, entries: None,
) -> History:
    """Run a workflow in `folder` to its end, or until it waits for a person. `watch` is called after every turn.

    `fakes` defines how steps end: `{"fetch": {"status": 503}, "load": [{"fail": "TIMEOUT"}, {"output": 3}]}`.
    """
    folder = Path(folder)
    workflow = _with_fake_undos(with_fakes(workflow, read_fakes(workflow, fakes or {})))
    if not folder.is_dir():
        raise InputInvalid(f"'{folder}' is not a folder", hint="create it first: a rehearsal runs its commands there")
    for step in (*workflow.steps, workflow.end):
        triager = triager_of(step)
        for command in all_commands([step]):
            _refuse_the_impossible(triager_name(step.name) if command is triager else step.name, command)
    with tempfile.TemporaryDirectory(prefix="mulligan-rehearsal-") as scratch:
        return _Rehearsal(workflow, folder, Path(scratch), slots=slots, watch=watch).run(inputs or {})


def _with_fake_undos(workflow: Workflow) -> Workflow:
    """The workflow in which the undo of a faked step succeeds, if it is no command: there is nothing to undo."""
    return msgspec.structs.replace(workflow, steps=tuple(map(_with_fake_undo, workflow.steps)))


def _with_fake_undo(step: Step) -> Step:
    if step.undo is None or not traits_of(step.action).is_fake or traits_of(step.undo.action).script:
        return step
    action = Action(FAKE, {"of": action_kind(step.undo), "ends": [{}]})
    return msgspec.structs.replace(step, undo=msgspec.structs.replace(step.undo, action=action))


def _refuse_the_impossible(step: str, command: Command) -> None:
    action = command.action
    if action is None:
        return
    found = traits_of(action)
    if found.calls_run or not (found.script or found.runs_in == "engine"):
        raise Refused(
            f"a rehearsal runs only shell commands, and step '{step}' has '{action.kind}'",
            hint=f"define how it ends: fakes={{'{step}': {{'output': …}}}}",
        )
    templates = (*action.bindings.values(), *command.env.values())
    if any(name.startswith("secrets") for template in templates for name in template.reads):
        raise Refused(
            f"a rehearsal looks up no secrets, and step '{step}' reads one",
            hint="pass it as an environment variable: ${env.NAME}",
        )


class _Rehearsal:
    def __init__(self, workflow: Workflow, folder: Path, scratch: Path, slots: int, watch: Callable[..., None]) -> None:
        self.history = History(workflow, evaluator=Cel(os.environ))
        self.folder = folder
        self.scratch = scratch
        self.slots = slots
        self.watch = watch
        self.reports: queue.Queue[r.Report] = queue.Queue()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, inputs: dict[str, Any]) -> History:
        try:
            self._report(r.RunRequested(_now(), run_id=1, inputs=inputs))
            while self.history.status not in RUN_ENDED:
                self._start_tasks()
                if not self.running and not self.history.timers:
                    break
                self._take_next()
        finally:
            for process in self.running.values():
                _kill(process)
        return self.history

    def _report(self, report: r.Report) -> None:
        self.history.clock = report.at
        seen = len(self.history.effects)
        self.history.report(report)
        for effect in self.history.effects[seen:]:
            if isinstance(effect, fx.StopTask) and effect.place in self.running:
                _kill(self.running[effect.place])
        self.watch(self.history.state, self.history.last)

    def _start_tasks(self) -> None:
        """Start as many tasks as there are slots. One that cannot be started ends at once, and may queue others."""
        while self.history.tasks and len(self.running) < self.slots:
            key = min(self.history.tasks)
            self._start(self.history.state.places[key], self.history.tasks.pop(key))

    def _take_next(self) -> None:
        """Return the next report, or the timers that came due while waiting for one."""
        timers = self.history.timers
        due = min((timer.due for timer in timers), default=None)
        patience = IDLE_SECONDS_MAX if due is None else min(IDLE_SECONDS_MAX, (due - _now()).total_seconds())
        try:
            report = self.reports.get(timeout=max(0.0, patience))
        except queue.Empty:
            now = _now()
            for timer in [timer for timer in timers if timer.due <= now]:
                timers.remove(timer)
                self._report(r.TimerFired(now, timer.kind, timer.place, timer.number))
            return
        if isinstance(report, r.TaskEnded):
            self.running.pop(report.place, None)
        self._report(report)

    # -- one task ----------------------------------------------------------------------------------------------------

    def _start(self, place: Place, attempt: int) -> None:
        assert place.spec.action is not None
        params = fill_params(place.spec.action, place.bindings)
        files = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            process = subprocess.Popen(
                [params.get("interpreter", "bash"), "-c", params["text"]],
                cwd=self.folder / str(place.bindings.get("cwd", "")),
                env=self._environment(place, files),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (MulliganError, OSError) as error:
            # A task that cannot be started has failed like any other.
            outcome = Outcome(code="INPUT_INVALID", message=getattr(error, "message", str(error)))
            self._report(r.TaskEnded(_now(), place.key, attempt, outcome))
            return
        self.running[place.key] = process
        self._report(r.TaskStarted(_now(), place.key, attempt, worker="rehearsal", host="here"))
        task = _Started(
            place.key, attempt, place.spec.capture, limit=self._limit(place), due=self._files_due(place), files=files
        )
        arguments = (task, process, as_text(params.get("stdin")).encode())
        threading.Thread(target=self._wait_for, args=arguments, daemon=True).start()

    def _limit(self, place: Place) -> float | None:
        adjusted = place.climb.adjusted
        return (adjusted.timeout if adjusted else None) or place.spec.timeout

    def _files_due(self, place: Place) -> dict[str, Path]:
        declared = self.history.state.workflow.files
        return {name: self.folder / declared.get(name, name) for name in expected_files(self.history.state, place)}

    def _environment(self, place: Place, files: Path) -> dict[str, str]:
        step = self.history.state.step_of(place)
        values = {
            "MULLIGAN_RUN_ID": "1",
            "MULLIGAN_WORKFLOW": self.history.state.workflow.name,
            "MULLIGAN_STEP": step.key,
            "MULLIGAN_VISIT": str(step.visit),
            "MULLIGAN_ATTEMPT": str(place.attempt),
            "MULLIGAN_OUTPUT": str(files / "output"),
            "MULLIGAN_ERROR": str(files / "error"),
            "MULLIGAN_PROGRESS": str(files / "progress"),
        }
        context = failure_view(self.history.state, place)["context"]
        if context:
            (files / "failure-context").write_text(context)
            values["MULLIGAN_FAILURE_CONTEXT"] = str(files / "failure-context")
        for name, value in place.bindings.items():
            if name != "cwd":
                key = name.removeprefix("env.")
                values[key] = environment_value(key, value)
        return {**os.environ, **values}

    def _wait_for(self, task: _Started, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        """Wait for a task, in its own thread."""
        is_late = False
        try:
            out, err = process.communicate(stdin, timeout=task.limit)
        except subprocess.TimeoutExpired:
            is_late = True
            _kill(process)
            out, err = process.communicate()
        code = process.returncode
        output, problem = _output(out, task.capture, task.files)
        outcome = Outcome(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            is_timed_out=is_late,
            stderr_tail=err.decode("utf-8", "replace")[-STDERR_TAIL_CHARS:],
            reported=_reported(task.files),
            output_error=problem,
            missing_outputs=tuple(name for name, path in task.due.items() if not path.exists()),
        )
        self.reports.put(r.TaskEnded(_now(), task.place, task.attempt, outcome=outcome, output=output))


class _Started(msgspec.Struct, frozen=True):
    """What is needed when a task ends."""

    place: str
    attempt: int
    capture: str
    limit: float | None
    # The declared files that must exist then, by name.
    due: dict[str, Path]
    # Where it may write its output and its errors.
    files: Path


def _now() -> datetime:
    return datetime.now(UTC)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and everything that it started. Once it was waited for, its id may be reused."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _output(out: bytes, capture: str, files: Path) -> tuple[Any, str]:
    """Return the output: the JSON in $MULLIGAN_OUTPUT, otherwise standard output as `capture` says."""
    written = files / "output"
    text = written.read_text() if written.exists() else out.decode("utf-8", "replace").removesuffix("\n")
    if not written.exists() and capture == "text":
        return text, ""
    if not written.exists() and capture == "lines":
        return text.splitlines(), ""
    try:
        return json.loads(text), ""
    except ValueError as error:
        return None, f"its output is not JSON: {error}"


def _reported(files: Path) -> tuple[Any, ...]:
    path = files / "error"
    if not path.exists():
        return ()
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        return ({"code": "OUTPUT_INVALID", "message": f"$MULLIGAN_ERROR is not JSON: {error}"},)
    return tuple(found) if isinstance(found, list) else (found,)
