"""The processes of the tests: one collects, and is forked for each of them.

To import and collect all tests takes ten seconds of a processor, and xdist has each of its processes do it. Here a
process that runs no tests, the template, collects them as a process of xdist would, notes what it would have told, and
waits. A process that is forked from it becomes a child of the one that prints; execnet and xdist talk to it as to any
other. Where the template ends early, or cannot be forked, xdist starts its own processes.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import FDCapture
from execnet import gateway_base, gateway_io
from xdist import remote
from xdist.plugin import _sys_path
from xdist.remote import TestQueue, WorkerInteractor, setup_config

# Before the configuration is made, nothing may be loaded that is a plugin.
PROGRAM = """
import json, os, socket, sys
from _pytest.config import _prepareconfig
caller = socket.socket(fileno=os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
call = json.loads(caller.recv(1 << 20))
sys.path[:], sys.argv[:] = call["path"], ["-c"]
os.environ.update(PYTEST_XDIST_WORKER="template", PYTEST_XDIST_WORKER_COUNT=str(call["count"]))
config = _prepareconfig(call["arguments"], None)
from tests.support.forked_tests import be_template
be_template(config, call["words"], caller)
"""
# What a gateway to a forked process is told to execute there.
GO_ON = "from tests.support.forked_tests import go_on; go_on(channel)"
PR_SET_CHILD_SUBREAPER = 36


# -- in the process that prints ----------------------------------------------------------------------------------------


class ForkTests:
    """A plugin for it: xdist gets forked processes."""

    def __init__(self) -> None:
        self._template: Template | None = None
        self._create_io = gateway_io.create_io

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: Sequence[Any]) -> None:
        if sys.platform == "linux" and all(str(spec) == "execmodel=main_thread_only//popen" for spec in specs):
            self._template = Template([str(one) for one in config.invocation_params.args], len(specs))
            gateway_io.create_io = self._forked_io

    def _forked_io(self, spec: Any, execmodel: Any) -> Any:
        from tests.support.forked_process import ForkedProcess

        template = self._template

        class TestsProcess(ForkedProcess):
            def fork(self, call: dict[str, Any], streams: list[int]) -> int:
                assert template is not None
                return template.fork(streams)

        with contextlib.suppress(EOFError, OSError):
            process = TestsProcess([], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            io = ForkedIO(process.stdin, process.stdout, execmodel)
            io.popen = process
            return io
        return self._create_io(spec, execmodel)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._is_forked = isinstance(node.gateway._io, ForkedIO)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_getremotemodule(self) -> str | None:
        return GO_ON if self._is_forked else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        gateway_io.create_io = self._create_io
        if self._template is not None:
            self._template.end()


class ForkedIO(gateway_io.Popen2IOMaster):
    """The pipes of a process that execnet has not started."""

    __init__ = gateway_base.Popen2IO.__init__


class Template:
    """The process that collects. It ends when this one does, whose socket is closed then."""

    def __init__(self, arguments: list[str], count: int) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=theirs, stdout=subprocess.DEVNULL)
        call = {"arguments": arguments, "count": count, "words": sys.argv, "path": _sys_path}
        self._socket.send(json.dumps(call).encode())

    def fork(self, streams: list[int]) -> int:
        """The id of a new child of this process, as soon as the tests are collected."""
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._socket, [b"fork"], streams)
            told = self._socket.recv(64)
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not told:
            raise EOFError("the template has ended")
        return int(told)

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


# -- the template ------------------------------------------------------------------------------------------------------


def be_template(config: pytest.Config, words: list[str], caller: socket.socket) -> None:
    """Collect, fork for whoever has the other end of stdin, and in what was forked: run tests."""
    setup_config(config, None)
    config._parser.prog = os.path.basename(words[0])
    config.workerinput = {"workerid": "template", "testrunuid": "", "mainargv": words}  # type: ignore[attr-defined]
    config.workeroutput = {}  # type: ignore[attr-defined]
    worker = ForkedWorkerInteractor(config, caller)
    # What was asked for that is not there, xdist's own processes are asked for, too.
    with contextlib.suppress(pytest.UsageError):
        config.hook.pytest_cmdline_main(config=config)
    worker.end()


def is_template() -> bool:
    return os.environ.get("PYTEST_XDIST_WORKER") == "template"


def was_forked() -> bool:
    return _worker is not None


def in_processes(work: Callable[[int], None], count: int) -> None:
    """Do the work of each number in a copy of this process, side by side."""
    started = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                work(number)
            finally:
                os._exit(0)
        started.append(pid)
    for pid in started:
        os.waitpid(pid, 0)


def _have_file_of_ones_own(fd: int) -> None:
    """What is captured goes to a file, which is that of all that were forked. Whoever has it open keeps it."""
    with tempfile.TemporaryFile(buffering=0) as own:
        os.dup2(own.fileno(), fd, inheritable=False)


class Notes:
    """What stands for a channel until there is one: keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.gateway = self
        self.execmodel = gateway_base.get_execmodel("main_thread_only")

    def send(self, event: Any) -> None:
        self.sent.append(event)


class ForkedWorkerInteractor(WorkerInteractor):
    """A process of xdist that is none yet when it has collected."""

    def __init__(self, config: pytest.Config, caller: socket.socket) -> None:
        super().__init__(config, Notes())  # type: ignore[arg-type]
        # An internal error is told by this name.
        remote.interactor = self  # type: ignore[attr-defined]
        self._caller = caller
        self._channels: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._has_run = threading.Event()
        self._is_told = threading.Event()

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Returns in processes that were forked, once they have run their tests."""
        capture = self.config.pluginmanager.getplugin("capturemanager")
        with warnings.catch_warnings():
            # Threads of libraries which they start again in a process that was forked.
            warnings.simplefilter("ignore")
            streams = self._fork_until_forked()
        capture.suspend_global_capture(in_=True)
        for one in (capture._global_capturing.out, capture._global_capturing.err):
            if isinstance(one, FDCapture):
                _have_file_of_ones_own(one.tmpfile.fileno())
        self._begin(streams)
        capture.resume_global_capture()
        capture.suspend_global_capture()
        return super().pytest_runtestloop(session)

    def _fork_until_forked(self) -> list[int]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout.flush()
        sys.stderr.flush()
        while True:
            text, streams, _, _ = socket.recv_fds(self._caller, 64, 3)
            if not text:
                os._exit(0)
            reader, writer = os.pipe()
            first = os.fork()
            if first == 0:
                # Whoever is left behind becomes a child of the process that prints, which asks for that.
                pid = os.fork()
                if pid == 0:
                    os.close(reader), os.close(writer)
                    return streams
                os.write(writer, b"%d" % pid)
                os._exit(0)
            os.waitpid(first, 0)
            self._caller.send(os.read(reader, 64))
            for fd in (reader, writer, *streams):
                os.close(fd)

    def _begin(self, streams: list[int]) -> None:
        """Be the process that xdist takes this one for, and tell what it would have told by now."""
        from tests.support.forked_supervisor import open_streams

        global _worker
        _worker = self
        self._caller.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        open_streams()
        # As in an interpreter that execnet has started. Its first task waits until this process has run its tests.
        _thread.start_new_thread(self._serve, ())
        channel = self._channels.get()
        notes, self.channel = self.channel, channel
        workerinput, _, options, _ = channel.receive()
        self.config.workerinput = workerinput  # type: ignore[attr-defined]
        self.workerid, self.testrunuid = workerinput["workerid"], workerinput["testrunuid"]
        os.environ.update({"PYTEST_XDIST_WORKER": self.workerid, "PYTEST_XDIST_TESTRUNUID": self.testrunuid})
        self.torun = TestQueue(channel.gateway.execmodel)
        self.config.option.basetemp = options["basetemp"]
        self.config._tmp_path_factory._given_basetemp = Path(options["basetemp"])  # type: ignore[attr-defined]
        for event in notes.sent:  # type: ignore[attr-defined]
            channel.send(event)

    def _serve(self) -> None:
        try:
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
        finally:
            self._is_told.set()

    def take(self, channel: Any) -> None:
        self._channels.put(channel)
        self._has_run.wait()

    def end(self) -> None:
        """End as an interpreter does, without taking apart what it has loaded."""
        if not isinstance(self.channel, Notes):
            self._has_run.set()
            self._is_told.wait()
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        os._exit(0)


_worker: ForkedWorkerInteractor | None = None


def go_on(channel: Any) -> None:
    assert _worker is not None
    _worker.take(channel)
