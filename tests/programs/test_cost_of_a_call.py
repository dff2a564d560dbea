"""What a call costs the process of its program: calls of Python functions, counted, not timed."""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Thread
from types import FrameType
from typing import Any

import pytest

from mulligan import program, step
from mulligan.programs import messages as m
from mulligan.programs.machine import Machine
from mulligan.programs.process import SocketLink
from mulligan.programs.running import run_function

FEW, MANY = 10, 60
TRIES = 5


@step(inline=True)
def nothing() -> None:
    return None


@step
def elsewhere(number: int) -> None: ...


@program
def inline(count: int) -> None:
    for _ in range(count):
        nothing()


@program
def ordinary(count: int) -> None:
    for number in range(count):
        elsewhere(number)


def frames(sock: socket.socket) -> Iterator[bytes]:
    with sock.makefile("rb") as file:
        while head := file.read(m.LENGTH_BYTES):
            yield file.read(int.from_bytes(head, "big"))


def answer(sock: socket.socket) -> None:
    """As a worker does when the calls are recorded, and have ended."""
    for frame in frames(sock):
        said = m.decode_from_program(frame)
        assert isinstance(said, m.Idle)
        ends = tuple(m.Delivery(call.id, output=call.output) for call in said.calls)
        sock.sendall(m.frame(m.Deliver(said.turn + (not said.goes_on), ends)))


def calls_of(function: Callable[..., Any], count: int) -> Counter[str]:
    """The calls of functions while a program runs that makes so many calls."""
    found = Counter[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[f"{frame.f_code.co_filename} {frame.f_code.co_name}"] += 1

    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        worker = Thread(target=answer, args=(theirs,))
        worker.start()
        machine = Machine(SocketLink(ours), step="program")
        sys.setprofile(note)
        try:
            ended = run_function(machine, function, {"count": count})
        finally:
            sys.setprofile(None)
            ours.shutdown(socket.SHUT_WR)
            worker.join()
    assert ended.how == "returned", ended.failure
    return found


@pytest.mark.parametrize(("called", "calls_max"), [(inline, 100), (ordinary, 66)], ids=["inline", "ordinary"])
def test_a_call_costs_the_process_of_its_program_so_many_calls(
    monkeypatch: pytest.MonkeyPatch, called: Any, calls_max: int
) -> None:
    # As in the environment of a program.
    own = {"STEP": "program", "VISIT": "1", "ATTEMPT": "1", "IDEMPOTENCY_KEY": "uid:program:1"}
    for name, value in own.items():
        monkeypatch.setenv(f"MULLIGAN_{name}", value)

    calls_of(called.fn, 1)
    found = [[calls_of(called.fn, count) for count in (FEW, MANY)] for _ in range(TRIES)]

    # Ends of inline steps that take longer on a busy machine are sent in more pieces.
    few, many = min(found, key=lambda one: one[1].total() - one[0].total())
    each = (many.total() - few.total()) / (MANY - FEW)
    assert each <= calls_max, "\n".join(f"{n:4} {name}" for name, n in (many - few).most_common())
