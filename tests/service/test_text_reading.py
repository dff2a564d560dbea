"""Texts of others are read in a process that can be killed, in bounded time and memory."""

from __future__ import annotations

import itertools
import operator
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mulligan.core.model.workflow import encode
from mulligan.errors import InputInvalid, LanguageError, RequestTooLarge, ServerBusy, TextTooCostly
from mulligan.service.authoring.served_coverage import PlayedText
from mulligan.service.server.catalogue.text_diff import diff_texts
from mulligan.service.server.catalogue.text_reading import Limits, TextReader
from mulligan.service.server.catalogue.texts import WorkflowText, convert_text, read_text, validate_text

SMALL = WorkflowText(
    "name: a\nsteps:\n- {step: one, shell: make}\n- {step: two, needs: [one], shell: make}\n", "a.yaml"
)
WRONG = WorkflowText("name: a\nstps: []\n", "a.yaml")
Apart = Callable[[TextReader, Callable[[], object]], object]


@pytest.fixture
def apart() -> Iterator[Apart]:
    """Calls in a thread of a server."""
    with ThreadPoolExecutor(1) as pool:

        def call(reader: TextReader, work: Callable[[], object]) -> object:
            pool.submit(reader.use).result()
            return pool.submit(work).result()

        yield call


def test_a_thread_of_a_server_reads_in_another_process_and_every_other_thread_itself(apart: Apart) -> None:
    assert apart(TextReader(Limits(words=1)), lambda: is_refused(SMALL))
    assert not is_refused(SMALL)
    assert TextReader().call(os.getpid) != os.getpid()


def test_a_workflow_that_another_process_has_read_is_of_the_same_version() -> None:
    here, there = read_text(SMALL), TextReader().call(read_text, SMALL)

    assert encode(there.workflow) == encode(here.workflow)


def is_refused(given: WorkflowText) -> bool:
    """Whether there are bounds for this thread."""
    try:
        read_text(given)
    except RequestTooLarge:
        return True
    return False


def test_a_process_reads_one_text_after_another() -> None:
    reader = TextReader(Limits(wall_seconds=59.0))
    # Two that others have left, with other limits, would leave no place for its process.
    reader.end_idle()

    assert reader.call(os.getpid) == reader.call(os.getpid)


def test_what_has_limits_of_its_own_is_read_within_them() -> None:
    with pytest.raises(TextTooCostly, match=r"more than 0\.2 s"):
        TextReader().call_within(Limits(cpu_seconds=0.2), max, itertools.count())


def test_texts_are_read_also_when_the_folder_is_gone_in_which_the_process_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = TextReader()
    # Those that wait were started elsewhere.
    reader.end_idle()
    gone = tmp_path / "gone"
    gone.mkdir()
    with monkeypatch.context() as there:
        there.chdir(gone)
        first = reader.call(os.getpid)
    gone.rmdir()

    assert reader.call(read_text, SMALL).workflow.name == "a"
    assert reader.call(os.getpid) == first


def cover_text(given: WorkflowText) -> object:
    return PlayedText(given).cover()


@pytest.mark.parametrize("read", [validate_text, read_text, convert_text, cover_text])
def test_an_answer_is_the_same_as_here(apart: Apart, read: Callable[[WorkflowText], object]) -> None:
    assert apart(TextReader(), lambda: read(SMALL)) == read(SMALL)


def test_what_differs_between_two_texts_is_found_there_too(apart: Apart) -> None:
    assert apart(TextReader(), lambda: diff_texts("a\nb", "a\nc")) == diff_texts("a\nb", "a\nc")


def test_a_refusal_comes_back_with_all_that_it_carries(apart: Apart) -> None:
    with pytest.raises(LanguageError) as here:
        read_text(WRONG)
    with pytest.raises(LanguageError) as there:
        apart(TextReader(), lambda: read_text(WRONG))
    with pytest.raises(InputInvalid) as python:
        apart(TextReader(), lambda: read_text(WorkflowText("", "a.py")))

    assert (there.value.problems, str(there.value)) == (here.value.problems, str(here.value))
    assert python.value.hint.startswith("publish what it builds")


def test_a_text_that_takes_too_long_is_refused_and_the_next_one_read() -> None:
    reader = TextReader(Limits(cpu_seconds=0.05))

    with pytest.raises(TextTooCostly) as refused:
        reader.call(sum, itertools.repeat(1))

    assert refused.value.message == "reading the text takes more than 0.05 s"
    assert reader.call(os.getpid)


def test_a_text_whose_process_waits_too_long_is_refused() -> None:
    with pytest.raises(TextTooCostly):
        TextReader(Limits(wall_seconds=0.05)).call(signal.pause)


def test_a_text_that_takes_too_much_memory_is_refused_and_the_next_one_read() -> None:
    reader = TextReader()

    with pytest.raises(TextTooCostly) as refused:
        reader.call(bytearray, 1 << 40)

    assert refused.value.message == "reading the text takes more than 1024 MiB of memory"
    assert reader.call(os.getpid)


def test_a_workflow_that_is_too_large_to_be_passed_on_is_refused(apart: Apart) -> None:
    with pytest.raises(TextTooCostly):
        apart(TextReader(Limits(answer_bytes=100)), lambda: read_text(SMALL))


def test_a_text_with_too_many_words_is_not_even_begun(apart: Apart) -> None:
    reader = TextReader(Limits(words=3))

    with pytest.raises(RequestTooLarge) as refused:
        apart(reader, lambda: read_text(SMALL))

    assert refused.value.data == {"words_max": 3}


def test_a_bug_in_the_other_process_is_one_here() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'of ours'"):
        TextReader().call(operator.getitem, {}, "of ours")


def test_whoever_waits_for_a_text_when_the_server_ends_is_told_so(tmp_path: Path) -> None:
    reader = TextReader()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(reader.call, eval, f"(open({str(pipe)!r}, 'w').close(), __import__('signal').pause())")
        # It has begun when the other side of the pipe is opened.
        with open(pipe):
            reader.close()
        error = hanging.exception(60)

    assert isinstance(error, ServerBusy)
    assert error.message == "the server is ending, and reads no more texts"


def test_a_process_that_was_killed_while_it_waited_is_replaced() -> None:
    reader = TextReader(Limits(wall_seconds=58.0))
    reader.end_idle()
    killed = reader.call(os.getpid)

    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)

    assert reader.call(os.getpid) != killed
