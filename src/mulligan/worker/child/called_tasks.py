"""Tasks that are functions in warm children: which child gets one, what it answers, and how it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.model.actions import traits
from mulligan.core.model.reports import Report
from mulligan.core.model.text.formatting import format_duration
from mulligan.worker.actions import python
from mulligan.worker.actions.action_registry import CalledAction, called_action
from mulligan.worker.actions.called_actions import runs_own_code
from mulligan.worker.actions.plain_tasks import is_plain_result
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.child.child_pool import ChildPool
from mulligan.worker.child.warm_child import (
    CallRequest,
    CallResult,
    ChildDisconnected,
    ChildProtocolError,
    ChildTask,
    ChildUse,
    WarmChild,
    importing_words,
)
from mulligan.worker.environments.python_environments import PythonEnvironments
from mulligan.worker.exit_reader import ExitReader
from mulligan.worker.folders import Folders, replace_private_file
from mulligan.worker.outputs.outputs import LargeOutput
from mulligan.worker.programs import Programs
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.redactor import Redactor
from mulligan.worker.slots.deadlines import seconds_left, visit_seconds_left
from mulligan.worker.slots.machine_trouble import BROKEN_PYTHON
from mulligan.worker.slots.wake_up import WakeUp
from mulligan.worker.supervisor import wall_clock
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_files import TaskFiles
from mulligan.worker.task_reports import ProcessExit

# A child that closed its socket is dying and has this long to exit. Otherwise its step closed our socket.
CUT_OFF_SECONDS = 1.0
# A task that waits for another machine first waits this long for a child that is about to be free: it may be there
# sooner than a new one.
CHILD_PATIENCE_SECONDS = 0.02
# A child that died while idle is noticed when it gets a step. Several in a row mean that the supervisor is dead too.
GIVE_ATTEMPTS_MAX = 5


class CalledTasks:
    """`running` are the tasks that the executor has taken, by token; `send` sends orders to its supervisor.

    `end` reports a task, `end_plain` one of which nothing but its result counts, `end_process` one whose child has
    died; `name_logs_later` gets every task that starts, `note_seconds`, if there is one, how long
    each Python task took.
    """

    def __init__(
        self,
        *,
        running: Mapping[int, RunningTask],
        children: ChildPool,
        background: BackgroundJobs,
        boundary: TaskBoundary,
        task_files: TaskFiles,
        folders: Folders,
        folder: str,
        programs: Programs,
        environments: PythonEnvironments,
        exit_reader: ExitReader,
        wake_up: WakeUp,
        grace_seconds: float,
        send: Callable[[tuple[Any, ...]], None],
        end: Callable[[int, Report], None],
        end_plain: Callable[[int, Any, dict[str, Any]], None],
        end_process: Callable[[int, ProcessExit], None],
        name_logs_later: Callable[[RunningTask, float], None],
        note_seconds: Callable[[float], None] | None,
    ) -> None:
        self._running = running
        self._children = children
        self._background = background
        self._boundary = boundary
        self._task_files = task_files
        self._folders = folders
        self._folder = folder
        self._programs = programs
        self._environments = environments
        self._exit_reader = exit_reader
        self._wake_up = wake_up
        self._grace_seconds = grace_seconds
        self._send = send
        self._end = end
        self._end_plain = end_plain
        self._end_process = end_process
        self._name_logs_later = name_logs_later
        self._note_seconds = note_seconds
        # Ready, but waiting for a child: since when, oldest first.
        self._awaiting_child: dict[int, float] = {}

    def is_awaiting_child(self, token: int) -> bool:
        return token in self._awaiting_child

    def forget(self, token: int) -> None:
        """Forget a task that has ended."""
        self._awaiting_child.pop(token, None)

    def clear(self) -> None:
        self._awaiting_child.clear()

    # -- starting

    def start(self, running: RunningTask, redactor: Redactor | None) -> None:
        """Give a task to a child, or let it wait for one."""
        lease = running.resolved
        if running.is_plain and redactor is None:
            # What is asked for below, a plain task has not.
            request = python.build_call(lease, running.scratch, self._folders)
            interpreter, group = python.interpreter_of(lease.task, self._programs), python.child_group_of(lease.task)
            self._give(running, None, request, group, interpreter, left=lease.task.timeout, visit_left=None)
            return
        action = called_action(lease.task)
        if redactor is not None and not running.scope and not runs_own_code(lease.task):
            running.scope = self._boundary.scope(running.lease)
        if lease.task.waits and self._must_await_child(running, action, is_redacted=redactor is not None):
            return
        request = action.build_call(lease, running.scratch, self._folders)
        if running.artifact_files:
            request = msgspec.structs.replace(request, files=running.artifact_files)
        visit_left = visit_seconds_left(lease.task)
        left = lease.task.timeout if visit_left is None else seconds_left(lease.task)
        interpreter = running.environment or action.interpreter_of(lease.task, self._programs)
        if running.environment is not None:
            variables = {**self._environments.variables(interpreter), **request.env}
            request = msgspec.structs.replace(request, env=variables)
        group = action.child_group_of(lease.task)
        if lease.task.gpus:
            # A process keeps the GPUs that it finds first, so this step gets a child that runs nothing else.
            group += f" {lease.token}"
        self._give(running, redactor, request, group, interpreter, left=left, visit_left=visit_left)

    def _give(
        self,
        running: RunningTask,
        redactor: Redactor | None,
        request: CallRequest,
        group: str,
        interpreter: str,
        *,
        left: float | None,
        visit_left: float | None,
    ) -> None:
        """Send the request to an idle child, or to a new one."""
        lease = running.resolved
        use = ChildUse(group, interpreter, is_redacted=redactor is not None, scope=running.scope)
        changed_at = 0.0 if running.code is None else running.code.changed_at
        for _ in range(GIVE_ATTEMPTS_MAX):
            began = wall_clock.now()
            child = self._children.take(use, self._folder, changed_at)
            now = time.monotonic()
            child_task = ChildTask(
                lease,
                began,
                None if left is None else now + left,
                timeout=lease.task.timeout,
                visit_due=None if visit_left is None else now + visit_left,
            )
            if redactor is not None and child.pipes is not None:
                # Before the child gets the step: it may finish writing before we return here.
                child.pipes.begin(redactor, self._task_files.logs(lease.task))
            try:
                self._children.start_task(child, child_task, request)
            except ChildDisconnected:
                self._children.retire(child)
                continue
            running.child, running.pipes = child.key, child.pipes
            child.is_leaving = lease.task.gpus > 0
            self._name_logs_later(running, now)
            if child_task.due is not None:
                self._wake_up.at(child_task.due)
            if lease.task.memory is not None:
                self._send(("limit", child.key, lease.task.memory))
            return
        self._end(lease.token, self._exit_reader.report_lost(lease.task))

    def _must_await_child(self, running: RunningTask, action: CalledAction, *, is_redacted: bool) -> bool:
        """Whether a task has to wait for a child: many may be ready at once, and a child takes time to start.

        Tasks of a few milliseconds take turns in as many children as there are slots; slower ones get more.
        """
        token, task, now = running.lease.token, running.resolved.task, time.monotonic()
        group, interpreter = action.child_group_of(task), action.interpreter_of(task, self._programs)
        if self._children.has_idle(
            ChildUse(group, interpreter, is_redacted=is_redacted, scope=running.scope), running.code_changed_at
        ):
            self._awaiting_child.pop(token, None)
            return False
        since = self._awaiting_child.setdefault(token, now)
        is_impatient = self._children.has_spare_slot or now - since >= CHILD_PATIENCE_SECONDS
        if is_impatient and self._children.may_launch(now):
            del self._awaiting_child[token]
            return False
        self._wake_up.at(max(since, now) + CHILD_PATIENCE_SECONDS)
        return True

    def start_awaiting(self) -> None:
        """Start tasks that wait for a child, the oldest first, until one has to wait on."""
        for token in list(self._awaiting_child):
            running = self._running[token]
            self.start(running, self._boundary.redactor(running.lease))
            if token in self._awaiting_child:
                self._wake_up.at(time.monotonic() + CHILD_PATIENCE_SECONDS)
                return

    # -- answers and ends

    def on_child_ready(self, child: WarmChild) -> None:
        """Read what a child has sent."""
        try:
            answer = child.receive()
        except ChildProtocolError:
            self._children.ignore(child)
            self._send(("stop", child.key, 0.0, "protocol error"))
            return
        except ChildDisconnected:
            self._children.retire(child)
            self._expect_exit(child)
            return
        if answer is not None and child.job is not None:
            if not self._background.finish(child, answer):
                self._send(("stop", child.key, 0.0, "dirty"))
        elif answer is not None and child.task is not None:
            self._on_answer(child, child.task, answer)
        elif child.task is not None:
            # It may have begun an import, or the call.
            self._say_imported(child.task)
            self._wake_up.at(child.task.due)
            self._wake_up.at(child.task.say_at)

    def _expect_exit(self, child: WarmChild) -> None:
        """Give a child that closed its socket a moment to exit; the supervisor reports how it ended."""
        if child.task is None:
            self._send(("stop", child.key, 0.0, "disconnected"))
        else:
            child.task.cut_off_at = time.monotonic() + CUT_OFF_SECONDS
            self._wake_up.at(child.task.cut_off_at)

    def _on_answer(self, child: WarmChild, child_task: ChildTask, answer: CallResult) -> None:
        lease = child_task.lease
        running = self._running[lease.token]
        if answer.out or answer.err:
            child.name_logs(self._task_files.logs(running.lease.task), answer.out > 0, answer.err > 0)
        if child.pipes is not None:
            child.pipes.drain()
        child.end_task()
        if answer.in_file:
            path = self._background.new_path()
            child.move_result(path)
            answer = msgspec.structs.replace(answer, output=LargeOutput(path, "result"))
        process_exit = ProcessExit(
            0,
            child_task.started,
            ended=wall_clock.now(),
            cpu_seconds=answer.cpu,
            peak_memory=answer.peak,
            import_seconds=child_task.import_seconds,
        )
        if running.is_plain and not child.is_leaving and is_plain_result(answer):
            if self._note_seconds is not None:
                self._note_seconds(process_exit.ended - process_exit.started)
            self._task_files.look_for_files(running)
            if not (running.may_have_files or running.has_progress):
                self._end_plain(lease.token, answer.output, process_exit.usage)
                if self._awaiting_child:
                    self.start_awaiting()
                if (due := self._children.retire_surplus(time.monotonic())) is not None:
                    self._wake_up.at(due)
                return
        elif self._note_seconds is not None and traits(lease.task.kind, lease.task.params).is_short:
            self._note_seconds(process_exit.ended - process_exit.started)
        is_over = not (child.is_leaving or answer.dirty or answer.forked)
        if is_over:
            # Nothing of the step runs any more that could write one later.
            self._task_files.look_for_files(running)
        result = python.report_result(
            running.resolved,
            self._folders,
            running.scratch,
            result=answer,
            process_exit=process_exit,
            has_files=running.may_have_files,
        )
        if lease.task.memory is not None:
            self._send(("limit", child.key, None))
        if is_over:
            self._end(lease.token, result)
            if self._awaiting_child:
                self.start_awaiting()
            self._wake_up.at(self._children.retire_surplus(time.monotonic()))
            return
        # Report the end when everything that the step started is dead.
        running.pending_report, running.name_logs_at = result, None
        if answer.dirty:
            child.is_leaving = True
        self._send(("stop", child.key, 0.0, "dirty") if child.is_leaving else ("sweep", child.key))

    def on_child_ended(self, child: WarmChild, process_exit: ProcessExit) -> None:
        """Report the task of a child that has died."""
        # The supervisor may have been faster than the socket, which tells whether its message was read.
        with suppress(ChildDisconnected, ChildProtocolError):
            child.receive()
        child_task = child.task
        if child_task is not None:
            child.name_logs(self._task_files.logs(child_task.lease.task))
            child.end_task()
        self._children.forget(child)
        if child.job is not None:
            self._background.restart(child)
        self.on_swept(child.key)
        if child_task is None or child_task.lease.token not in self._running:
            return
        if process_exit.ended < child_task.started:
            # The child was dead before it got the step.
            self.start(self._running[child_task.lease.token], self._boundary.redactor(child_task.lease))
            return
        if child.is_unread and process_exit.exit_code and child.use.interpreter == sys.executable:
            self._running[child_task.lease.token].broken_program = BROKEN_PYTHON
        own = msgspec.structs.replace(
            process_exit,
            started=child_task.started,
            import_seconds=child_task.import_seconds,
            importing=child_task.importing,
        )
        self._end_process(child_task.lease.token, own)

    def on_swept(self, key: int) -> None:
        """Report a step whose background processes are all dead."""
        for token, running in list(self._running.items()):
            if running.child == key and running.pending_report is not None:
                self._end(token, running.pending_report)

    def stop_overdue(self, now: float) -> None:
        """Stop the children whose steps have run too long, or that do not exit after they closed their socket."""
        for child, child_task in self._children.busy_children():
            if child_task.say_at is not None and child_task.say_at <= now:
                self._say_importing(child_task, now)
            if child_task.due is not None and child_task.due <= now:
                child_task.due = child_task.say_at = None
                child.is_leaving = True
                self._send(("stop", child.key, self._grace_seconds, "timeout"))
            if child_task.cut_off_at is not None and child_task.cut_off_at <= now:
                child_task.cut_off_at = None
                self._send(("stop", child.key, 0.0, "disconnected"))
            self._wake_up.at(child_task.due)
            self._wake_up.at(child_task.say_at)
            self._wake_up.at(child_task.cut_off_at)

    def _say_importing(self, child_task: ChildTask, now: float) -> None:
        """Show as the progress of a step that its module is still being imported, and when to say it next."""
        passed = now - child_task.import_began
        child_task.say_at, child_task.is_said = now + passed, True
        what = importing_words(child_task.importing or "")
        self._show_progress(child_task, f"still importing {what} after {format_duration(round(passed))}")

    def _say_imported(self, child_task: ChildTask) -> None:
        if child_task.is_said and child_task.importing is None:
            child_task.is_said = False
            self._show_progress(child_task, f"imported in {format_duration(round(child_task.import_seconds))}")

    def _show_progress(self, child_task: ChildTask, text: str) -> None:
        running = self._running.get(child_task.lease.token)
        if running is not None:
            running.has_progress = True
            with suppress(OSError):
                replace_private_file(running.scratch.progress, f"{text}\n")
