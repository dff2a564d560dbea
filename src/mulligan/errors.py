"""All errors, as one tree. Each class has a stable code, an HTTP status and an exit code.

    MulliganError                       mulligan                 500   1
      Refused                           refused                  409   2   a verb that is not possible now
        RunFinished                     run.finished             409   2
        RunDriven                       run.driven               409   2   a live process drives it
        MessageRefused                  run.message_refused      409   2   a bug: the run cannot process a request
        KeyUsed                         run.key_used             409   2   a run was already started with this key
          KeyMismatch                   run.key_mismatch         422   2   with another workflow or other inputs
        RunNotFinished                  run.not_finished         409   2
        NothingToRetry                  run.nothing_to_retry     409   2
        UndoFailed                      step.undo_failed         409   2
        StepNotParked                   step.not_parked          409   2
          OtherAttemptParked            step.other_attempt       409   2
        StepNotWaitingForApproval       step.not_waiting         409   2
      RunFailed                         run.failed               409   1   a run has failed or was cancelled
      WaitTimedOut                      run.wait_timed_out       408   1   a run has not ended in time
      RunNotDriven                      run.not_driven           409   5   nothing drives a run that is waited for
      NotFound                          not_found                404   2
        UnknownRun                      run.unknown              404   2
        UnknownStep                     step.unknown             404   2
        UnknownItem                     item.unknown             404   2
        UnknownBreaker                  breaker.unknown          404   2
        UnknownPath                     request.path             404   2   a server has nothing at this address
      LanguageError                     language                 422   2   a file is refused: carries its `problems`
      InputInvalid                      input.invalid            422   2
        EventUnusable                   event.unusable           422   2   what waits for an event cannot use its value
        TextTooCostly                   text.too_costly          422   2   a server reads no text for so long
      ExpressionFailed                  expression.failed        422   2
        OutputDropped                   expression.output_too_large  422   2
      RequestRefused                    request.refused          400   2   a request that a server cannot read
        RequestTooLarge                 request.too_large        413   2
        RequestTooSlow                  request.too_slow         408   2
        MethodNotAllowed                request.method           405   2
        NotAcceptable                   request.not_acceptable   406   2
        MediaUnsupported                request.media            415   2
        HostRefused                     request.host             421   2   under a name that the server does not have
        OriginRefused                   request.origin           403   2   sent by a page of another site
        TokenRefused                    token.refused            401   2   missing, unknown, expired or revoked
        ScopeMissing                    token.scope              403   2   the token may not do this
          VerdictNotAllowed             token.verdict            403   2   the token may not decide this
          ConfidenceTooLow              token.confidence         403   2   the author is not sure enough
        TooManyRequests                 token.too_many           429   1   temporary: retry later
          TooManyDecisions              token.decisions          429   1   temporary: as many as it may make in an hour
      ServerUnusable                    server.unusable          500   2   it cannot be started as it is
      ServerFailed                      server.failed            500   1   a bug: its log has the reason
      Conflict                          store.conflict           409   1   another process has written the run
      RevisionMismatch                  revision.mismatch        412   2   somebody has changed it meanwhile
      StaleLease                        task.stale_lease         409   1   a worker reports with an expired lease
      StoreUnavailable                  store.unavailable        503   1   temporary: retry later
        NoFreeConnection                store.no_connection      503   1   the server has reached its limit
        ServerBusy                      server.busy              503   1   it has too much to do, or is ending
      TakesTooLong                      request.takes_too_long   503   1   temporary: retry later, or ask for less
      StoreRefused                      store.refused            500   1   the store cannot be used as it is
        StoreOvertaken                  store.overtaken          503   1   a newer Mulligan has migrated it
        HomeUnusable                    home.unusable            500   1   the folder of the runs cannot be used
          HomeReadOnly                  home.read_only           500   1   it can be looked at, and not changed
        StoreLibraryMissing             store.library_missing    500   1   the library for it is not installed
        DatabaseMissing                 store.no_database        500   1   the server has no database of that name
        LoginRefused                    store.login_refused      500   1   the server refuses the login
        StoreForbidden                  store.forbidden          500   1   no permission for its tables
        PostgresUnusable                postgres.unusable        500   1   a private PostgreSQL cannot start
      ClusterUnavailable                cluster.unavailable      503   1   a cluster of another system does not answer
      ClusterRefused                    cluster.refused          500   2   it cannot be used as it is
      SlurmMissing                      slurm.missing            500   1   its programs are not here
      SlurmUnreachable                  slurm.unreachable        503   1   temporary: the controller does not answer
      SlurmRefused                      slurm.refused            409   1   with the sentence of Slurm
      HomeMoved                         home.moved               410   1   while a process used it
      ObjectStoreFailed                 object_store.failed      503   1   a bucket does not do what is asked
      ArtifactGone                      artifact.gone            410   1   a run refers to it, but it was removed
        UnknownArtifact                 artifact.unknown         404   2   no run that the caller sees has it
      ArtifactDamaged                   artifact.damaged         409   1   its content has changed
      CodecError                        codec                    500   1   stored data cannot be read
        RunDamaged                      run.damaged              409   1   that of a run: it can be removed
      IllegalTransition                 internal.unlawful        500   1   a bug: a fact that is not allowed

A message says what happened, where, and what to do: the user's words quoted, lower case, no full stop.
An exception carries its data as fields, so that no caller has to parse a sentence.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec


class MulliganError(Exception):
    """The base of all errors of Mulligan."""

    code: ClassVar[str] = "mulligan"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data

    def __reduce__(self) -> tuple[object, ...]:
        # Errors go from process to process: each class has its own arguments.
        return _restore, (type(self), self.args, self.__dict__)

    def render(self) -> str:
        """The message as a terminal shows it: code and message, and on the next line the hint."""
        text = f"error[{self.code}]: {bounded(self.message)}"
        return f"{text}\n  {bounded(self.hint)}" if self.hint else text


def _restore(cls: type[MulliganError], args: tuple[object, ...], fields: dict[str, object]) -> MulliganError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class Refused(MulliganError):
    """A verb that is not possible for the run in its current state. Nothing was changed."""

    code = "refused"
    http_status = 409
    exit_code = 2


class RunFinished(Refused):
    code = "run.finished"


class RunDriven(Refused):
    """A live process already drives the run."""

    code = "run.driven"


class MessageRefused(Refused):
    """A request that the run cannot process because of a bug in Mulligan. The run goes on without it."""

    code = "run.message_refused"


class KeyUsed(Refused):
    """A run was already started with this key."""

    code = "run.key_used"

    def __init__(self, message: str, *, hint: str = "", run_id: int = 0) -> None:
        super().__init__(message, hint=hint, run_id=run_id)
        self.run_id = run_id


class KeyMismatch(KeyUsed):
    """A run was already started with this key, with another workflow or other inputs."""

    code = "run.key_mismatch"
    http_status = 422

    def __init__(self, message: str, *, hint: str = "", run_id: int = 0, inputs: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint, run_id=run_id)
        self.data["inputs"] = list(inputs)


class RunNotFinished(Refused):
    code = "run.not_finished"


class NothingToRetry(Refused):
    code = "run.nothing_to_retry"


class UndoFailed(Refused):
    """A step would run again whose undo has failed, so that what it did may still be in effect."""

    code = "step.undo_failed"


class StepNotParked(Refused):
    code = "step.not_parked"


class OtherAttemptParked(StepNotParked):
    """A decision names an attempt, and another one is parked by now."""

    code = "step.other_attempt"


class StepNotWaitingForApproval(Refused):
    code = "step.not_waiting"


class RunFailed(MulliganError):
    """A run has failed or was cancelled. For programs that ask for it: `Run.raise_for_status`."""

    code = "run.failed"
    http_status = 409

    def __init__(self, message: str, *, hint: str = "", run_id: int = 0, status: str = "failed") -> None:
        super().__init__(message, hint=hint, run_id=run_id, status=status)
        self.run_id = run_id
        self.status = status


class WaitTimedOut(MulliganError, TimeoutError):
    """A run has not ended in the time that a program waits for it. The run continues."""

    code = "run.wait_timed_out"
    http_status = 408


class RunNotDriven(MulliganError):
    """Nothing drives a run that a program waits for, so it cannot end."""

    code = "run.not_driven"
    http_status = 409
    exit_code = 5


class NotFound(MulliganError):
    code = "not_found"
    http_status = 404
    exit_code = 2


class UnknownRun(NotFound):
    code = "run.unknown"


class UnknownStep(NotFound):
    code = "step.unknown"


class UnknownItem(NotFound):
    code = "item.unknown"


class UnknownBreaker(NotFound):
    code = "breaker.unknown"


class UnknownPath(NotFound):
    """A server has nothing at this address."""

    code = "request.path"


class RequestRefused(MulliganError):
    """A request that a server cannot read, or does not accept. Nothing was changed."""

    code = "request.refused"
    http_status = 400
    exit_code = 2


class RequestTooLarge(RequestRefused):
    code = "request.too_large"
    http_status = 413


class RequestTooSlow(RequestRefused):
    """The body does not come."""

    code = "request.too_slow"
    http_status = 408


class MethodNotAllowed(RequestRefused):
    code = "request.method"
    http_status = 405


class NotAcceptable(RequestRefused):
    code = "request.not_acceptable"
    http_status = 406


class MediaUnsupported(RequestRefused):
    code = "request.media"
    http_status = 415


class HostRefused(RequestRefused):
    """The request names a host that is not the server's: a page of another site may have sent it."""

    code = "request.host"
    http_status = 421


class OriginRefused(RequestRefused):
    """A page of another site has sent the request."""

    code = "request.origin"
    http_status = 403


class TokenRefused(RequestRefused):
    """No token, or one that is unknown, has expired or was revoked. Which of these it is, is not said."""

    code = "token.refused"
    http_status = 401


class ScopeMissing(RequestRefused):
    """The token is valid, and may not do this."""

    code = "token.scope"
    http_status = 403


class VerdictNotAllowed(ScopeMissing):
    """A decision of a kind that the token may not make."""

    code = "token.verdict"


class ConfidenceTooLow(ScopeMissing):
    """A decision that its author is not sure enough of, or does not say how sure."""

    code = "token.confidence"


class TooManyRequests(RequestRefused):
    """More requests than the token may send. A later one is accepted."""

    code = "token.too_many"
    http_status = 429
    exit_code = 1


class TooManyDecisions(TooManyRequests):
    """More decisions than the token may make in an hour."""

    code = "token.decisions"


class ServerUnusable(MulliganError):
    """A server cannot be started as it is: its port is taken, its certificate is missing, its extra not installed."""

    code = "server.unusable"
    exit_code = 2


class ServerFailed(MulliganError):
    """A bug of the server. The answer has an id; the log of the server has the reason under that id."""

    code = "server.failed"


# The prefix of the code of a problem that does not refuse the file.
WARNING = "warning."


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem in a file: where, what, and what to do. Lines and columns count from 1; 0 means no position.

    A code that begins with `warning.` marks a likely mistake: it is shown and does not refuse the file.
    """

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    length: int = 1
    source_line: str = ""
    hint: str = ""

    @property
    def kind(self) -> str:
        """`error`, or `warning`."""
        return "warning" if self.code.startswith(WARNING) else "error"

    @property
    def shown_code(self) -> str:
        """The code without the prefix of warnings."""
        return self.code.removeprefix(WARNING)

    def render(self) -> str:
        """The problem as a terminal shows it: the message, the line, and carets under the words."""
        file = bounded(self.file)
        place = f"{file}:{self.line}:{self.column}: " if self.line else f"{file}: " if self.file else ""
        return f"{self.kind}[{self.shown_code}]: {place}{bounded(self.message)}" + self._excerpt()

    def _excerpt(self) -> str:
        if not self.line:
            return f"\n  {bounded(self.hint)}" if self.hint else ""
        shown, start = _window(self.source_line, self.column - 1)
        before = shown[: self.column - 1 - start]
        under = shown[len(before) : len(before) + self.length]
        gutter = " " * len(str(self.line))
        carets = "^" * max(1, sum(map(_cells, under)))
        blanks = "".join(map(_blank, before))
        return f"\n  {self.line} | {shown}\n  {gutter} | {blanks}{carets} {bounded(self.hint)}".rstrip()


class LanguageError(MulliganError):
    """A file is refused. Has every problem found, in file order."""

    code = "language"
    http_status = 422
    exit_code = 2

    SHOWN_MAX: ClassVar[int] = 20

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda p: (p.file, p.line, p.column, p.code, p.message)))
        super().__init__(self.problems[0].message if self.problems else "the file was refused")

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """Every problem with its line and caret, at most twenty."""
        shown = [problem.render() for problem in self.problems[: self.SHOWN_MAX]]
        more = len(self.problems) - len(shown)
        return "\n".join([*shown, f"and {more} more"] if more else shown)


# How many warnings of one kind are shown.
WARNINGS_EACH_MAX = 10


def first_of_each_kind(
    warnings: Sequence[Problem], each_max: int = WARNINGS_EACH_MAX
) -> tuple[list[Problem], dict[str, int]]:
    """The first warnings of each code, in order, and how many more there are of a code: a file may cause thousands."""
    shown: list[Problem] = []
    counts: dict[str, int] = {}
    for warning in warnings:
        counts[warning.shown_code] = counts.get(warning.shown_code, 0) + 1
        if counts[warning.shown_code] <= each_max:
            shown.append(warning)
    return shown, {code: count - each_max for code, count in counts.items() if count > each_max}


def render_warnings(warnings: Sequence[Problem]) -> list[str]:
    """Warnings as a terminal shows them: the first of each kind, and how many more there are."""
    shown, more = first_of_each_kind(warnings)
    all_of_them = "mulligan validate --json FILE lists all"
    return [
        *(warning.render() for warning in shown),
        *(f"warning[{code}]: and {count:,} more of this kind\n  {all_of_them}" for code, count in more.items()),
    ]


# A longer text, and a longer word in it, such as a path, is cut in its middle where it is shown.
TEXT_CHARS_MAX, WORD_CHARS_MAX = 4000, 300


def bounded(text: str) -> str:
    """The text as it is shown: a value of a user in it may be of any length."""
    if len(text) <= WORD_CHARS_MAX:
        return text
    lines = text.split("\n")
    text = "\n".join(" ".join(_cut(word, WORD_CHARS_MAX) for word in line.split(" ")) for line in lines)
    return _cut(text, TEXT_CHARS_MAX)


def _cut(text: str, chars_max: int) -> str:
    if len(text) <= chars_max:
        return text
    tail = chars_max // 3
    return f"{text[: chars_max - tail - 1]}…{text[-tail:]}"


# A longer line is cut to this many characters around the caret.
_SHOWN_CHARS_MAX = 160


def _window(line: str, caret: int) -> tuple[str, int]:
    """The part of `line` to show, without control characters, and where it starts."""
    start = 0 if len(line) <= _SHOWN_CHARS_MAX else max(0, caret - _SHOWN_CHARS_MAX // 2)
    part = line[start : start + _SHOWN_CHARS_MAX]
    return "".join(char if char == "\t" or char.isprintable() else "\ufffd" for char in part), start


def _cells(char: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _blank(char: str) -> str:
    """White space as wide as the character above it. A tab stays a tab, since its width depends on the terminal."""
    return char if char == "\t" else " " * _cells(char)


class InputInvalid(MulliganError):
    code = "input.invalid"
    http_status = 422
    exit_code = 2


class EventUnusable(InputInvalid):
    """What waits for an event cannot use its value: it does not match the schema."""

    code = "event.unusable"


class TextTooCostly(InputInvalid):
    """Reading a text takes more time or memory than a server spends on one."""

    code = "text.too_costly"


class ExpressionFailed(MulliganError):
    """An expression that could not be evaluated. Inside a run it becomes a failure with `failure_code`."""

    code = "expression.failed"
    http_status = 422
    exit_code = 2
    failure_code: ClassVar[str] = "EXPRESSION_FAILED"


class OutputDropped(ExpressionFailed):
    """An expression that reads an output that was too large to be kept."""

    code = "expression.output_too_large"
    failure_code = "OUTPUT_TOO_LARGE"


class Conflict(MulliganError):
    """Another process has taken the turn of the run or written its log. Nothing of the commit was written."""

    code = "store.conflict"
    http_status = 409


class RevisionMismatch(MulliganError):
    """A document was changed since the caller read it. Nothing was written."""

    code = "revision.mismatch"
    http_status = 412
    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", revision: int = 0) -> None:
        super().__init__(message, hint=hint, revision=revision)
        self.revision = revision


class StaleLease(MulliganError):
    """The lease has expired or was revoked. The report was not accepted."""

    code = "task.stale_lease"
    http_status = 409


class StoreUnavailable(MulliganError):
    """The store does not answer now: a lost connection, a lock, a full disk. It may recover."""

    code = "store.unavailable"
    http_status = 503
    # Whether another process holds its file: then nothing of what was asked has been done.
    is_locked = False


class NoFreeConnection(StoreUnavailable):
    """The server has reached its limit of connections. One may become free."""

    code = "store.no_connection"


class ServerBusy(StoreUnavailable):
    """A server has too many requests to answer, or is ending. Nothing of what was asked has been done."""

    code = "server.busy"


class TakesTooLong(MulliganError):
    """An answer about very many runs is not there in time. A later question may find it."""

    code = "request.takes_too_long"
    http_status = 503


class StoreRefused(MulliganError):
    """The store cannot be used as it is: a newer schema, not a database, a folder without write permission."""

    code = "store.refused"


class StoreOvertaken(StoreRefused):
    """A newer Mulligan has migrated the store: a process of this version must neither read nor write it."""

    code = "store.overtaken"
    http_status = 503


class HomeUnusable(StoreRefused):
    """The folder of the runs cannot be read or written, or is not a folder."""

    code = "home.unusable"


class HomeReadOnly(HomeUnusable):
    """The folder of the runs can be read and not written, and something had to be written."""

    code = "home.read_only"


class StoreLibraryMissing(StoreRefused):
    """The library that opens this kind of store is not installed."""

    code = "store.library_missing"


class DatabaseMissing(StoreRefused):
    """The server has no database of that name."""

    code = "store.no_database"


class LoginRefused(StoreRefused):
    """The server refuses the login: an unknown user, a wrong password, no permission to connect."""

    code = "store.login_refused"


class StoreForbidden(StoreRefused):
    """The user has no permission to create or write the tables."""

    code = "store.forbidden"


class PostgresUnusable(StoreRefused):
    """A private PostgreSQL cannot be started, stopped or asked, because of its folder, its port or its disk."""

    code = "postgres.unusable"


class ClusterUnavailable(MulliganError):
    """The cluster that should run the steps cannot be reached, or has no workers."""

    code = "cluster.unavailable"
    http_status = 503


class ClusterRefused(MulliganError):
    """The cluster that should run the steps cannot be used as it is: another version, a missing library or setting."""

    code = "cluster.refused"
    exit_code = 2


class SlurmMissing(MulliganError):
    """The programs of Slurm are not on this machine."""

    code = "slurm.missing"


class SlurmUnreachable(MulliganError):
    """The controller of Slurm does not answer. Temporary."""

    code = "slurm.unreachable"
    http_status = 503


class SlurmRefused(MulliganError):
    """Slurm refuses a job. `about`: whether its size is the reason, a limit, or what the profile says."""

    code = "slurm.refused"
    http_status = 409

    def __init__(self, message: str, *, hint: str = "", about: str = "profile", sentence: str = "") -> None:
        super().__init__(message, hint=hint, about=about, sentence=sentence)
        self.about = about
        self.sentence = sentence


class HomeMoved(MulliganError):
    """The home was moved, replaced or removed while this process drove runs in it."""

    code = "home.moved"
    http_status = 410


class ObjectStoreFailed(MulliganError):
    """A bucket that has artifacts does not do what is asked. `failure_code`: that of an attempt that needs it."""

    code = "object_store.failed"
    http_status = 503

    def __init__(self, message: str, *, hint: str = "", failure_code: str = "EXCEPTION") -> None:
        super().__init__(message, hint=hint, failure_code=failure_code)
        self.failure_code = failure_code


class ArtifactGone(MulliganError):
    """A large output that a run refers to no longer exists."""

    code = "artifact.gone"
    http_status = 410


class UnknownArtifact(ArtifactGone):
    """There is no such output or file among the runs that the caller may see."""

    code = "artifact.unknown"
    http_status = 404
    exit_code = 2


class ArtifactDamaged(MulliganError):
    """The content of a large output has changed, or a reference to one is not valid."""

    code = "artifact.damaged"
    http_status = 409


class CodecError(MulliganError):
    code = "codec"


class RunDamaged(CodecError):
    """What the store has of a run cannot be read, or does not fit together. Nothing but its removal is possible."""

    code = "run.damaged"
    http_status = 409

    def __init__(self, message: str, *, hint: str = "", run_id: int = 0) -> None:
        super().__init__(message, hint=hint, run_id=run_id)
        self.run_id = run_id


class IllegalTransition(MulliganError):
    """A fact that the table of transitions does not allow. It changes nothing."""

    code = "internal.unlawful"


def error_by_code(code: str) -> type[MulliganError]:
    """The class for an error's code; `MulliganError` for an unknown code."""
    return next((found for found in _subclasses(MulliganError) if found.code == code), MulliganError)


def _subclasses(error: type[MulliganError]) -> Iterator[type[MulliganError]]:
    yield error
    for below in error.__subclasses__():
        yield from _subclasses(below)
