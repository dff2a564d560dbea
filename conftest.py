"""What every test, also of the packages, can rely on: the same generated examples everywhere, and a PostgreSQL server.

The server is started by the first test that asks for it, and by no other.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from compileall import compile_file
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from tests.support import rows
from tests.support.forked_tests import ForkTests, in_processes, is_template
from tests.support.memory import processes_in, use_memory
from tests.support.nightly import IS_NIGHTLY, leave_to_the_night
from tests.support.times import Times
from tests.support.unsteady import RepeatFailed

from mulligan.testing.postgres import own_schema, shared_server

# As in the Makefile: with this, every process of the tests and every one that they start would compile all anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A script that starts the tests in the background has them ignore Ctrl-C, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test that fails only sometimes teaches people to run it again. No deadline: a busy machine is no bug of ours.
settings.register_profile("mulligan", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("mulligan")
# Hypothesis also draws constants that it reads from the source of each of our modules which is loaded by then: in every
# process others, and to read them all takes seconds. Its plugin reads them once all tests are collected.
if not IS_NIGHTLY:
    providers.HypothesisProvider._local_constants = providers.Constants()
    providers._get_local_constants = providers.Constants


# How long what was killed by the last tests may take to be gone.
SECONDS_TO_END = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--repeat-failed", action="store_true", help="run each failed test again, alone on a busy machine")
    parser.addoption("--times", action="store_true", help="print what the tests cost, by kinds and by folders")


def pytest_configure(config: pytest.Config) -> None:
    is_printing = "PYTEST_XDIST_WORKER" not in os.environ
    if config.getoption("--repeat-failed") and is_printing:
        config.pluginmanager.register(RepeatFailed())
    if config.getoption("--times"):
        config.pluginmanager.register(Times(adds_up=is_printing))
    if is_printing:
        use_memory(config)
        config.pluginmanager.register(ForkTests())
    elif not any(config.getoption(name, None) for name in ("--times", "--durations", "--junit-xml")):
        send_less(config)


def send_less(config: pytest.Config) -> None:
    """A process of the tests reports what passed once: not its start, its setup and its teardown.

    The process that prints makes nothing of these, and to send and read them costs more than most tests.
    """
    for sender in [
        one for one in config.pluginmanager.get_plugins() if type(one).__name__.endswith("WorkerInteractor")
    ]:
        send = sender.pytest_runtest_logreport

        def pytest_runtest_logreport(report: pytest.TestReport, send: Callable[..., None] = send) -> None:
            if report.when == "call" or not report.passed:
                send(report=report)

        config.pluginmanager.unregister(sender)
        sender.pytest_runtest_logreport = pytest_runtest_logreport
        sender.pytest_runtest_logstart = None
        config.pluginmanager.register(sender)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three processes for each core: half of the time of a test is waiting for processes, disks and timers.

    A further one costs next to nothing: it is forked once the tests are collected.
    """
    return 3 * len(os.sched_getaffinity(0))


def pytest_sessionstart(session: pytest.Session) -> None:
    """The files that were never loaded are prepared by several processes, before one of them collects.

    In a fresh clone, compiling and rewriting asserts is two thirds of the time of collecting.
    """
    if not is_template():
        return
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    state = session.config.stash[rewrite.assertstate_key]
    modules, tests = sorted(_modules()), sorted(_test_files(session.config.args))

    def prepare(number: int) -> None:
        for file in modules[number::count]:
            compile_file(file, quiet=2)
        for file in tests[number::count]:
            folder = rewrite.get_cache_dir(file)
            prepared = folder / (file.stem + rewrite.PYC_TAIL)
            if not prepared.exists() and rewrite.try_makedirs(folder):
                source_hash, code = rewrite._rewrite_test(file, session.config)
                rewrite._write_pyc(state, code, source_hash, prepared)

    in_processes(prepare, count)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: it is not searched for garbage, neither now nor while the tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> pytest.Item | None:
    is_module = isinstance(collector, pytest.Module) and rows.is_folding(collector.config)
    return rows.folded(collector, name, obj) if is_module else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_to_the_night(config, items)


def _modules() -> Iterator[Path]:
    """What is tested: these files are compiled alone."""
    for folder in ("src", "packages/nl2sql/src", "proof"):
        yield from (Path(__file__).parent / folder).rglob("*.py")


def _test_files(arguments: list[str]) -> Iterator[Path]:
    for argument in arguments:
        path = Path(argument.partition("::")[0]).absolute()
        yield from path.rglob("test_*.py") if path.is_dir() else [path]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """A process that a test has left behind fails the run: nobody else would ever end it."""
    yield
    if "PYTEST_XDIST_WORKER" in os.environ or session.exitstatus != pytest.ExitCode.OK:
        return
    folder, until = session.config._tmp_path_factory.getbasetemp(), time.monotonic() + SECONDS_TO_END
    while (left := processes_in(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    if left:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\ntests have left processes behind:", *left.values(), sep="\n  ", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the session: no test builds in that of the user, or removes anything from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULLIGAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Say how a process of the tests ended that should not have: xdist says only which test it ran."""
    if error is not None and (popen := getattr(node.gateway._io, "popen", None)) is not None:
        code = popen.wait(10)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        print(f"\nprocess {popen.pid} of {node.gateway.id} {how}: {error}", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session", autouse=True)
def _own_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that signals an id which a process of the tests has by now fails: it has kept it for too long.

    Ids are used again within minutes of tests. The process with that id would die, and its test would be blamed.
    """
    folder = tmp_path_factory.getbasetemp()
    ids = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "processes-of-the-tests"
    ids.mkdir(exist_ok=True)
    (ids / str(os.getpid())).touch()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("kill", "killpg"):
            patch.setattr(os, name, _sparing(getattr(os, name), ids))
        yield
    (ids / str(os.getpid())).unlink()


def _sparing(send: Callable[[int, int], None], ids: Path) -> Callable[[int, int], None]:
    def spare(pid: int, number: int) -> None:
        is_ours = pid == os.getppid() or (ids / str(pid)).exists()
        if number and pid != os.getpid() and is_ours:
            raise AssertionError(f"process {pid} runs tests: its id was that of another process before")
        send(pid, number)

    return spare


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One PostgreSQL server for all processes of the session."""
    folder = tmp_path_factory.getbasetemp()
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as url:
        yield url


@pytest.fixture
def schema_url(server_url: str) -> Iterator[str]:
    """An empty schema on it, for one test."""
    with own_schema(server_url) as url:
        yield url
