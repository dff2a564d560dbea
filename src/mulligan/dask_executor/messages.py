"""What a driver and the session that it has inside a Dask worker say to each other.

Dask carries bytes and never looks inside. Nothing of a run is a task of Dask, so Dask has nothing to run again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, dataclass_transform

import msgspec

from mulligan.core.model import reports as r
from mulligan.ports import Lease, LogChunk

# The operation of a Dask worker that opens a session: the connection belongs to the session from then on.
OPERATION = "mulligan-session"

# How a task may end: what an executor reports.
TaskReport = r.TaskEnded | r.TaskInterrupted | r.LeaseExpired


class Versions(msgspec.Struct, frozen=True):
    """What has to be the same on both sides."""

    mulligan: str
    python: str
    distributed: str


class Introduction(msgspec.Struct, frozen=True):
    """What a Dask worker says about itself before a session is opened."""

    versions: Versions
    host: str
    # Unique for the process of the Dask worker: an address may be used again.
    process: str


class Hello(msgspec.Struct, frozen=True):
    """The first message of a driver."""

    # The name of the session: no other worker ever has it.
    name: str
    cpus: float
    memory: int
    gpus: int
    labels: tuple[str, ...]
    # The time of the driver's clock.
    now: datetime
    # The tasks are killed if no heartbeat comes for two thirds of this.
    lease_seconds: float
    log_bytes_max: int
    # The home of the driver, and a file in it that shows whether the Dask worker has the same folder.
    home: str
    lock: str


# -- from the driver ---------------------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True)
class Order(msgspec.Struct, frozen=True, tag=True):
    """Anything that a driver asks of a session."""


class Start(Order):
    """Run these tasks: each a lease as JSON, which also holds integers of more than 64 bits."""

    leases: list[bytes]


class Stop(Order):
    token: int
    grace_seconds: float


class StopAll(Order):
    grace_seconds: float


class GiveBack(Order):
    """Return these tasks if they have not been started."""

    tokens: list[int]


class Drop(Order):
    """Kill all tasks and forget them; then say `Dropped`."""


class Close(Order):
    """Kill all tasks and end the session; then say `Closed`."""


class Renew(Order):
    """The driver is alive: so many seconds ago it was allowed to go on."""

    age_seconds: float


class Answer(Order):
    """The answer to a call: a value, or the code, message and hint of an error."""

    number: int
    value: Any = None
    error: tuple[str, str, str] | None = None


AnyOrder = Start | Stop | StopAll | GiveBack | Drop | Close | Renew | Answer


# -- from the session --------------------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True)
class Notice(msgspec.Struct, frozen=True, tag=True):
    """Anything that a session says to its driver."""


class Ended(Notice):
    """Tasks that have ended, by token: each with its report as JSON. What they wrote was sent before."""

    reports: list[tuple[int, bytes]]


class Returned(Notice):
    """Tasks that were not started, and will not be."""

    tokens: list[int]


class Written(Notice):
    """Parts of logs."""

    chunks: list[LogChunk]


class ProgressMade(Notice):
    """How far an attempt said that it is, as its file has it."""

    token: int
    data: bytes


class Call(Notice):
    """A question to the store of the driver."""

    number: int
    name: str
    arguments: dict[str, Any]


class Leaving(Notice):
    """The Dask worker closes: give it no more tasks. What runs is stopped."""


class Dropped(Notice):
    pass


class Closed(Notice):
    pass


AnyNotice = Ended | Returned | Written | ProgressMade | Call | Leaving | Dropped | Closed

encode = msgspec.msgpack.Encoder().encode
encode_json = msgspec.json.Encoder().encode
decode_lease = msgspec.json.Decoder(Lease).decode
decode_report = msgspec.json.Decoder(TaskReport).decode
decode_order = msgspec.msgpack.Decoder(AnyOrder).decode
decode_notice = msgspec.msgpack.Decoder(AnyNotice).decode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
