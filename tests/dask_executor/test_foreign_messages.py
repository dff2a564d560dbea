"""What a Dask worker says that no session of ours says: it costs its tasks, never the driver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.work import no_history

from mulligan.dask_executor.channel import Channel
from mulligan.dask_executor.driver_store import DriverLogs
from mulligan.dask_executor.messages import Call
from mulligan.dask_executor.store_answers import LogFiles, StoreAnswers
from mulligan.ports import LogChunk, LogKey
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.worker.folders import Folders


def answers(folder: Path) -> StoreAnswers:
    return StoreAnswers(ArtifactFiles(folder / "artifacts"), lambda tag, limit: [], no_history)


@pytest.mark.parametrize("name", ["../outside", "1/../../outside", "/outside", "", "1/a\0b"])
def test_an_artifact_stays_in_the_folder_of_artifacts(tmp_path: Path, name: str) -> None:
    found = answers(tmp_path).answer(Call(1, "keep", {"name": name, "data": b"x", "format": "json"}))

    assert found.error is not None and found.error[0] == "store.refused"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "call",
    [
        *(Call(1, "remove", {}), Call(1, "keep", {"path": "x"}), Call(1, "fetch", {"artifact": {"name": 3}})),
        Call(1, "history", {"run_id": "1", "delivered": 2}),
        Call(1, "log", {"key": {"run_id": 1, "place": "a", "attempt": 1, "stream": "../x"}, "start": 0, "end": 1}),
        Call(
            1, "log", {"key": {"run_id": 1, "place": "a", "attempt": 1, "stream": "stdout"}, "start": 0, "end": 1 << 40}
        ),
    ],
    ids=lambda call: f"{call.name} {len(str(call.arguments))}",
)
def test_a_question_that_is_none_is_refused(tmp_path: Path, call: Call) -> None:
    with pytest.raises(msgspec.ValidationError, match=call.name):
        answers(tmp_path).answer(call)


@pytest.mark.parametrize("start", [-1, 1 << 63])
def test_a_log_at_an_impossible_position_is_left_out(tmp_path: Path, start: int) -> None:
    LogFiles(Folders(tmp_path)).write([LogChunk(LogKey(1, "a", 1, "stdout"), start, b"x")])

    assert [path.read_bytes() for path in tmp_path.rglob("*.out")] in ([], [b""])


def test_a_worker_reads_what_another_one_has_written_of_a_log(tmp_path: Path) -> None:
    logs, key = LogFiles(Folders(tmp_path)), LogKey(1, "a", 1, "stdout")
    logs.write([LogChunk(key, 0, b"begins\n")])
    store = StoreAnswers(ArtifactFiles(tmp_path / "artifacts"), lambda tag, limit: [], no_history, logs.read)
    driver = DriverLogs(lambda name, **given: store.answer(Call(1, name, given)).value, logs.write, list)

    assert driver.read_log(key, 2, 100) == b"gins\n"
    assert driver.read_log(LogKey(1, "b", 1, "stdout"), 0, 100) == b""


class FakeComm:
    """A connection over which one message comes that is none of ours, and then nothing more."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.is_aborted = False

    async def read(self) -> Any:
        return self.message

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("message", [{}, None, {"messages": 3}])
def test_a_connection_that_cannot_be_understood_is_ended(message: Any) -> None:
    comm = FakeComm(message)

    async def serve() -> Channel:
        channel = Channel(comm, lambda data: None)
        await channel.run()
        return channel

    assert asyncio.run(serve()).is_closed
    assert comm.is_aborted
