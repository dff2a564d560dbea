"""The debugger of a step: what `breakpoint()` opens, and what opens where a step fails.

Loaded for steps that are debugged, by the process that runs them. Any interpreter, like `child_main`: standard library
only. The dialogue goes to the terminal alone; what the step prints goes to the terminal and to its log.
"""

from __future__ import annotations

import os
import pdb
import sys
from contextlib import suppress

from mulligan.step_context.trace_frames import user_frames

# `typing` itself is not imported: a step that imports this should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any, TextIO

# The variable with which Python itself chooses another debugger, or none.
CHOICE = "PYTHONBREAKPOINT"
# Where a debugger of an editor may connect: this machine alone.
LOOPBACK = "127.0.0.1"
QUIT_CODE = "DEBUGGER_QUIT"
HOW_TO_GO_ON = "'c' continues, 'q' ends this attempt"
HOW_TO_END = "'q' leaves the debugger"
# Of the step that this process runs, if it is debugged.
ACTIVE: Debugger | None = None


class Debugger:
    """Debugs the steps of one process, one at a time, on a terminal; or lets an editor connect to a port."""

    def __init__(self, terminal: str = "", *, port: int = 0, stops: bool = False) -> None:
        self._terminal = terminal
        self._port = port
        # Whether it stops at the first line of a step.
        self._stops = stops
        self._screen: TextIO | None = None
        self._is_connected = False
        # Where the person has quit: the attempt ends, whatever the step makes of that.
        self.quit_at = ""
        # A program that is replayed has done all of this before: nothing opens, and nothing is logged.
        self.is_replaying = False
        self.is_begun = False
        self._hook: Any = sys.breakpointhook
        self._streams: Any = None
        # What the terminal has taken the place of.
        self._saved: list[int] = []

    def begin(self) -> None:
        """Give a step the terminal, and `breakpoint()` a meaning."""
        global ACTIVE
        self.quit_at, self.is_begun, ACTIVE = "", True, self
        self._hook, self._streams = sys.breakpointhook, (sys.stdin, sys.stdout, sys.stderr)
        if self._terminal:
            self._saved = [os.dup(number) for number in (0, 1, 2)]
            self._take_terminal(self._saved)
        if self._port:
            self._connect()
        else:
            sys.breakpointhook = self._on_breakpoint

    def end(self) -> None:
        """All is as before `begin`, whatever the step has done."""
        global ACTIVE
        self.is_begun, ACTIVE = False, None
        sys.settrace(None)
        _flush()
        sys.breakpointhook = self._hook
        sys.stdin, sys.stdout, sys.stderr = self._streams
        for number, copy in enumerate(self._saved):
            os.dup2(copy, number)
            os.close(copy)
        self._saved, self._screen = [], None

    def _take_terminal(self, saved: list[int]) -> None:
        """Make the terminal standard input and output. It is not the controlling terminal of this process."""
        terminal = os.open(self._terminal, os.O_RDWR | os.O_NOCTTY)
        for number in (0, 1, 2):
            os.dup2(terminal, number)
        os.close(terminal)
        self._screen = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        out, err = (open(log, "w", buffering=1, errors="replace", closefd=False) for log in saved[1:])  # noqa: SIM115
        sys.stdout, sys.stderr = _Both(self, self._screen, out), _Both(self, self._screen, err)

    def _connect(self) -> None:
        """Wait for an editor, once for each process."""
        if self._is_connected:
            return
        import debugpy

        debugpy.listen((LOOPBACK, self._port))
        self.say(f"waiting for a debugger on {LOOPBACK}:{self._port}")
        debugpy.wait_for_client()
        self._is_connected = True

    def say(self, text: str) -> None:
        """Say something to the person, not to the log."""
        if self._screen is not None:
            self._screen.write(f"mulligan: {text}\n")
            self._screen.flush()

    def show_traceback(self, text: str) -> None:
        """Show it before the debugger opens: it is logged later."""
        if self._screen is not None:
            self._screen.write(text)

    # -- the moments at which it opens

    def call(self, function: Callable[..., Any], run: Callable[[], Any]) -> Any:
        """Run a step; stop at the first line of its function if that was asked for."""
        # An editor has its own breakpoints, and its own tracing.
        code = _code_of(function) if self._stops and not self._port else None
        if code is None:
            return run()
        sys.settrace(self._until(code))
        try:
            return run()
        finally:
            sys.settrace(None)

    def _until(self, code: CodeType) -> Callable[[FrameType, Any, Any], Any]:
        def trace(frame: FrameType, event: Any, value: Any) -> Any:
            if event != "call" or frame.f_code is not code:
                return None
            opened = self._open()
            self.say(f"stopped at the first line of the step; {HOW_TO_GO_ON}")
            opened.set_trace(frame)
            return opened.trace_dispatch

        return trace

    def _on_breakpoint(self, *values: Any, **named: Any) -> Any:
        if os.environ.get(CHOICE):
            return sys.__breakpointhook__(*values, **named)
        if self.is_replaying:
            return None
        self.say(HOW_TO_GO_ON)
        self._open().set_trace(sys._getframe(1))
        return None

    def post_mortem(self, error: BaseException, step: str) -> None:
        """Open where an exception was raised. Nothing that happens here changes what is recorded of it."""
        frames = user_frames(error)
        if frames is None or self._screen is None or self._port or self.quit_at or os.environ.get(CHOICE) == "0":
            return
        sys.settrace(None)
        self.say(f"step '{step}' failed with {_in_words(error)}; {HOW_TO_END}")
        opened = self._open(is_post_mortem=True)
        opened.reset()
        try:
            opened.interaction(None, frames)
        except (SystemExit, KeyboardInterrupt):
            raise
        except Exception as problem:  # the terminal may be gone
            self.say(f"the debugger has ended: {_in_words(problem)}")

    def _open(self, *, is_post_mortem: bool = False) -> _StepPdb:
        return _StepPdb(self, self._screen, is_post_mortem=is_post_mortem)

    def quit_report(self) -> dict[str, Any]:
        """What is recorded of an attempt that the person has ended, as of a `StepError`."""
        return {"code": QUIT_CODE, "message": f"the debugger was quit at {self.quit_at}", "retryable": False}


class _StepPdb(pdb.Pdb):
    """The debugger of Python, on a terminal that is not the standard output of the step."""

    def __init__(self, debugger: Debugger, screen: TextIO | None, *, is_post_mortem: bool) -> None:
        # Ctrl-C goes to who runs the steps: it interrupts the run.
        super().__init__(stdout=screen, nosigint=True)
        # With lines that can be edited, as on standard output.
        self.use_rawinput = True
        self._debugger = debugger
        self._is_post_mortem = is_post_mortem

    def do_quit(self, arg: str) -> Any:
        if not self._is_post_mortem and self.curframe is not None:
            code = self.curframe.f_code
            self._debugger.quit_at = f"{os.path.basename(code.co_filename)}:{self.curframe.f_lineno}"
        return super().do_quit(arg)

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> Any:  # noqa: N802 - the name of the command
        self.message("")
        return self.do_quit(arg)


class _Both:
    """A stream to the terminal that is written into a log as well."""

    def __init__(self, debugger: Debugger, screen: TextIO, log: TextIO) -> None:
        self._debugger, self._screen, self.log = debugger, screen, log

    def write(self, text: str) -> int:
        if not self._debugger.is_replaying:
            with suppress(OSError):
                self.log.write(text)  # if the disk is full, the person still sees it
        return self._screen.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.log.flush()
        self._screen.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)


def _code_of(function: Any) -> CodeType | None:
    """The code of a function below its decorators; None if it has none in Python."""
    seen = 0
    while hasattr(function, "__wrapped__") and seen < 100:
        function, seen = function.__wrapped__, seen + 1
    function = getattr(function, "__func__", function)
    code: CodeType | None = getattr(function, "__code__", None)
    return code


def _in_words(error: BaseException) -> str:
    try:
        text = str(error)[:500]
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S112
            continue  # a step may have closed or replaced them
