"""The messages between the process of a program and its worker, and the file with its recorded history.

A frame is its length (four bytes, big-endian) and a msgpack map with `type`. The process says `Idle` or `Ended` and
then waits; the worker answers `Idle` with `Deliver`. So there is always one side that speaks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from mulligan.core.model.program_calls import CALLS_MAX as CALLS_MAX
from mulligan.core.model.program_calls import CallKind as CallKind

# How many calls a program may make unless it says more.
CALLS_MAX_DEFAULT = 10_000
LENGTH_BYTES = 4
DIGEST_CHARS = 32

EndedAs = Literal["returned", "raised"]


def digest_of(data: bytes) -> str:
    """The digest of canonical JSON: of arguments, which a replay compares by it, or of a definition."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


class CallId(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a call: its branch, and its ordinal in that branch, from 0."""

    branch: str
    ordinal: int


class StepDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The definition of a step, sent once before the first call of it. `step`: canonical JSON of the core's `Step`."""

    digest: str
    step: bytes


class CallFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a call has failed, or the program: a part of the core's `Failure`."""

    code: str
    message: str = ""
    severity: Literal["warning", "error", "critical"] = "error"
    retryable: bool = True
    details: dict[str, Any] = {}
    trace: str = ""
    exit_code: int | None = None
    # The label of the call.
    step: str = ""
    attempt: int = 0
    exceptions: tuple[str, ...] = ()
    traceback: tuple[dict[str, Any], ...] = ()


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that the program has made since it was idle last."""

    id: CallId
    # What it is called, without a number: the name of the step. The core makes the label of it: `load#2`.
    name: str
    kind: CallKind = "step"
    # The digest of its `StepDefinition`; "" for a value.
    definition: str = ""
    # The arguments by parameter, as canonical JSON; and the digest of that (`digest_of`).
    arguments: bytes = b"{}"
    digest: str = ""
    # Where the program calls it.
    file: str = ""
    line: int = 0
    # Chosen with `options(key=…)`; "" if none.
    key: str = ""
    # In a gather: its position there and how many there are, for people.
    position: tuple[int, int] | None = None
    # Of an inline step and a value: what came of it, and how long it took.
    output: Any = None
    failure: CallFailure | None = None
    seconds: float = 0.0


class Idle(msgspec.Struct, frozen=True, omit_defaults=True, tag="idle"):
    """The program cannot go on before a call of it has ended. `turn`: that of the message which it answers."""

    turn: int
    definitions: tuple[StepDefinition, ...] = ()
    calls: tuple[Call, ...] = ()
    # Open calls that the program does not want any more.
    cancelled: tuple[CallId, ...] = ()
    # Where it waits, for people: "nightly.py:14".
    at: str = ""
    # It only waits until this is recorded: it is answered at once, with the end of the inline step that it has run.
    goes_on: bool = False
    # The processor time of its process since its last message, and the most memory that it has used.
    cpu: float = 0.0
    peak: int = 0
    # What it has published since it said so last, as JSON; None if nothing.
    published: Any = None

    @property
    def wants_ends(self) -> bool:
        """Whether it waits for the end of a call, be it one that it has run itself."""
        return not self.goes_on or any(call.kind == "inline" for call in self.calls)


class Ended(msgspec.Struct, frozen=True, omit_defaults=True, tag="ended"):
    """The program has returned or raised. Calls that are still open are cancelled.

    `failure` has the code of what it raised: EXCEPTION; NONDETERMINISTIC; UNAWAITED; that of the `StepFailed` or
    `StepError` that left it; TIMEOUT, too many calls (LOOP_LIMIT) …
    """

    turn: int
    how: EndedAs
    output: Any = None
    failure: CallFailure | None = None
    definitions: tuple[StepDefinition, ...] = ()
    calls: tuple[Call, ...] = ()
    cancelled: tuple[CallId, ...] = ()
    # Where it was raised: "nightly.py:14".
    at: str = ""
    cpu: float = 0.0
    peak: int = 0
    published: Any = None


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call has ended. At most one of `output` and `failure` is set; a cancelled call has the failure CANCELLED.

    An output may refer to artifacts: `files` of the message has their paths.
    """

    id: CallId
    label: str = ""
    output: Any = None
    failure: CallFailure | None = None
    # When it ended, by the log: seconds since 1970.
    at: float = 0.0


class Begin(msgspec.Struct, frozen=True, omit_defaults=True, tag="begin"):
    """Start the program in a cold process: load the function, replay `history`, then run on until it is idle."""

    turn: int
    # How to find the function, as a python step says it: `module:name`, the text of the module if it is pinned with
    # the run, the file it was copied from, and a folder to import from.
    call: str
    source: str = ""
    file: str = ""
    import_from: str = ""
    # The arguments by parameter.
    inputs: dict[str, Any] = {}
    # The file with the `History`; "" for a program that has none. And how many of its ends the program had got when it
    # last said that it waits: what it prints after the next one is new.
    history: str = ""
    seen: int | None = None
    files: dict[str, str] = {}
    calls_max: int = CALLS_MAX_DEFAULT
    # The processor time that it may use between two messages, in seconds; None: any.
    timeout: float | None = None
    # The label of the program itself.
    step: str = ""
    # When it was entered, by the log: the same for every attempt.
    at: float = 0.0
    # The terminal on which it is debugged; "" if it is not. Whether a failure has the local variables of its frames.
    terminal: str = ""
    has_locals: bool = False


class Deliver(msgspec.Struct, frozen=True, omit_defaults=True, tag="deliver"):
    """Calls have ended, in the order of the log. The process takes one, runs until it is idle, then takes the next.

    It answers once, after the last, with everything that was called meanwhile. Without deliveries: go on waiting.
    """

    turn: int
    deliveries: tuple[Delivery, ...] = ()
    files: dict[str, str] = {}


class RecordedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of the log, with what a replay compares."""

    id: CallId
    name: str
    label: str
    kind: CallKind = "step"
    definition: str = ""
    digest: str = ""
    file: str = ""
    line: int = 0
    # Values that were recorded are not delivered: they are returned at once.
    output: Any = None
    # To say which argument differs: as JSON, and the names of those that are too long for it.
    arguments: bytes = b"{}"
    long_arguments: tuple[str, ...] = ()

    def is_same(self, kind: str, name: str, digest: str) -> bool:
        """Whether this is what the program calls now."""
        return (self.kind, self.name, self.digest) == (kind, name, digest)


class DroppedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that an earlier round has dropped. If it is made again, it gets its label, and goes on counting."""

    id: CallId
    label: str
    visit: int
    attempt: int
    digest: str = ""
    # It has completed: the next call of its branch, name and arguments gets its result, and its label.
    has_result: bool = False


class History(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a cold process replays: all calls in the order in which they were made, all ends in the order of the log.

    What differs from it is said with `NONDETERMINISTIC`. A program is corrected before: see `correction`.
    """

    calls: tuple[RecordedCall, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    # The program was edited since: calls with a key that are kept need not be asked for any more.
    is_edited: bool = False
    dropped: tuple[DroppedCall, ...] = ()


FromProgram = Idle | Ended
ToProgram = Begin | Deliver

encode = msgspec.msgpack.Encoder().encode
decode_from_program = msgspec.msgpack.Decoder(FromProgram).decode
decode_to_program = msgspec.msgpack.Decoder(ToProgram).decode
decode_history = msgspec.msgpack.Decoder(History).decode


def frame(message: FromProgram | ToProgram) -> bytes:
    """A message as it is sent."""
    data = encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def encode_history(calls: Iterable[RecordedCall], deliveries: Iterable[Delivery]) -> bytes:
    """The file of a history."""
    return encode(History(tuple(calls), tuple(deliveries)))


# -- the process that forks --------------------------------------------------------------------------------------------


class Fork(msgspec.Struct, frozen=True, omit_defaults=True, tag="fork"):
    """To the host: fork a process for a program. Its socket comes with the frame (SCM_RIGHTS). Logs are appended."""

    number: int
    stdout: str
    stderr: str
    cwd: str = "/"
    env: dict[str, str] = {}


class Kill(msgspec.Struct, frozen=True, omit_defaults=True, tag="kill"):
    """To the host: kill a process at once (SIGKILL), with the group that it leads. One that has ended is none."""

    number: int


class Exited(msgspec.Struct, frozen=True, omit_defaults=True, tag="exited"):
    """From the host: a process has ended, with its exit status or signal, its processor time and its peak memory."""

    number: int
    status: int = 0
    signal: int | None = None
    cpu: float = 0.0
    peak: int = 0


ToHost = Fork | Kill
decode_to_host = msgspec.msgpack.Decoder(ToHost).decode
decode_exited = msgspec.msgpack.Decoder(Exited).decode


def frame_of_host(message: ToHost | Exited) -> bytes:
    """A message to or from the host as it is sent."""
    data = encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
