"""Asynchronous steps share the event loop of their warm child; steps that yield report their progress."""

from __future__ import annotations

import pytest
from tests.support.work import Announcements, Work

from mulligan.core.model.outcome import Outcome

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

CLIENT = """
import asyncio
class Client:
    async def open(self):
        self.lock, self.loop = asyncio.Lock(), asyncio.get_running_loop()
        self.server = await asyncio.start_server(self.serve, '127.0.0.1', 0)
        self.reader, self.writer = await asyncio.open_connection(*self.server.sockets[0].getsockname())
    async def serve(self, reader, writer):
        pass
client = Client()
async def first():
    await client.open()
    return 'open'
async def second():
    async with client.lock:
        client.writer.write(b'x')
        await client.writer.drain()
    return client.loop is asyncio.get_running_loop()
"""


def called(work: Work, call: str, **fields: object) -> object:
    report = work.run(work.lease("python", {"call": call}, **fields))
    assert report.outcome == Outcome()
    return report.output


def test_a_client_that_one_step_made_can_be_used_by_the_next(work: Work) -> None:
    (work.folder / "clients.py").write_text(CLIENT)

    assert called(work, "clients:first") == "open"
    assert called(work, "clients:second") is True


def test_a_task_that_a_step_leaves_is_cancelled_and_its_exception_is_in_the_log(work: Work) -> None:
    code = (
        "import asyncio\n"
        "async def left():\n  try:\n    await asyncio.sleep(60)\n  finally:\n    raise KeyError('left')\n"
        "async def main():\n  task = asyncio.create_task(left())\n  await asyncio.sleep(0)\n  return 1"
    )
    lease = work.python(code)

    assert work.run(lease).output == 1

    assert "KeyError: 'left'" in work.log(lease, "err").read_text()
    assert work.run_python("import asyncio\nasync def main(): return len(asyncio.all_tasks())").output == 1


@pytest.mark.parametrize(
    "breaking",
    [
        "asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop); await asyncio.sleep(9)",
        "asyncio.set_event_loop(asyncio.new_event_loop())",
        "import signal; asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)",
        "await asyncio.get_running_loop().shutdown_default_executor()",
        "asyncio.get_running_loop().set_exception_handler(lambda *_: 1 / 0)",
    ],
)
def test_a_step_that_breaks_the_loop_does_not_break_the_next_one(work: Work, breaking: str) -> None:
    work.run_python(f"import asyncio\nasync def main():\n  {breaking}")

    report = work.run_python("import asyncio\nasync def main(): return await asyncio.to_thread(lambda: 42)")

    assert (report.outcome, report.output) == (Outcome(), 42)


def test_a_loop_that_a_later_step_closed_is_replaced(work: Work) -> None:
    (work.folder / "loops.py").write_text(
        "import asyncio\nasync def open_it():\n  global loop\n  loop = asyncio.get_running_loop()\n"
        "def close_it(): loop.close()\nasync def use_it(): return asyncio.get_running_loop() is loop"
    )

    called(work, "loops:open_it")
    called(work, "loops:close_it")

    assert called(work, "loops:use_it") is False


def test_threads_of_asyncio_end_with_the_step_so_the_child_is_kept(work: Work) -> None:
    code = "import asyncio, os\nasync def main(): return await asyncio.to_thread(os.getpid)"

    assert work.run_python(code).output == work.run_python(code).output


def test_a_plain_step_after_an_asynchronous_one_has_no_event_loop(work: Work) -> None:
    work.run_python("async def main(): pass")

    report = work.run_python("import asyncio\ndef main(): return asyncio.run(asyncio.sleep(0, 'mine'))")

    assert report.output == "mine"


def test_asyncio_is_not_loaded_for_other_steps(work: Work) -> None:
    assert work.run_python("import sys\ndef main(): return 'asyncio' in sys.modules").output is False


def test_a_stopped_asynchronous_step_cleans_up_within_its_grace(work: Work, announcements: Announcements) -> None:
    code = (
        "import asyncio\n"
        "async def main(path):\n  try:\n    open(path, 'w').write('up\\n')\n    await asyncio.sleep(60)\n"
        "  finally:\n    await asyncio.sleep(0.01)\n    print('cleaned')"
    )
    lease = work.python(code, {"path": str(announcements.path)})
    work.start(lease)
    announcements.lines(1)

    work.executor.stop(1, 30.0)
    (report,) = work.reports()

    assert report.outcome.is_stopped
    assert work.log(lease).read_text() == "cleaned\n"


def test_the_output_of_a_step_that_yields_is_what_it_returns(work: Work) -> None:
    code = "def main():\n  yield 0.3\n  yield 3, 10\n  yield 3, 10, 'text'\n  yield 'text'\n  yield 7\n  return 'done'"

    assert work.run_python(code).output == "done"


def test_a_generator_expression_is_no_progress(work: Work) -> None:
    report = work.run_python("def main(): return (number for number in range(3))")

    assert report.output is None
    assert report.outcome.output_error == (
        "it returned a generator expression, which would be taken for its progress; return list(…)"
    )


def test_an_asynchronous_step_that_yields_has_no_output(work: Work) -> None:
    code = "import asyncio\nasync def main():\n  yield 1, 2\n  await asyncio.sleep(0)\n  yield 2, 2"

    report = work.run_python(code)

    assert (report.outcome, report.output) == (Outcome(), None)


@pytest.mark.parametrize("value", ["{'a': 1}", "None", "True", "[3, 10]", "(1, 2, 3, 4)", "('x', 2)", "-1", "object()"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_is_no_progress_must_not_be_yielded(work: Work, kind: str, value: str) -> None:
    report = work.run_python(f"{kind} main():\n  try:\n    yield {value}\n  finally:\n    print('closed')")

    assert report.output is None
    assert report.outcome.output_error.startswith("it yielded ")
    assert report.outcome.output_error.endswith(
        "a step yields its progress, 0.3, (3, 10), (3, 10, 'text') or 'text', and returns its output"
    )


def test_an_exception_in_a_generator_is_the_failure_of_the_step(work: Work) -> None:
    report = work.run_python("def main():\n  yield 1, 2\n  raise ValueError('no')")

    assert report.outcome.message == "ValueError: no"
    assert report.outcome.trace.splitlines()[1:3] == [
        '  File "<step step1>", line 3, in main',
        "    raise ValueError('no')",
    ]
