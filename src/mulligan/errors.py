"""What can go wrong, as one tree. Each class has a stable code, an HTTP status and an exit code.

    MulliganError                       mulligan                 500   1
      Refused                           refused                  409   2   a verb that makes no sense now
        RunFinished                     run.finished             409   2
        RunNotFinished                  run.not_finished         409   2
        NothingToRetry                  run.nothing_to_retry     409   2
        StepNotParked                   step.not_parked          409   2
        StepNotWaitingForApproval       step.not_waiting         409   2
      NotFound                          not_found                404   2
        UnknownRun                      run.unknown              404   2
        UnknownStep                     step.unknown             404   2
      LanguageError                     language                 422   2   a file is refused: carries its `problems`
      InputInvalid                      input.invalid            422   2
      ExpressionFailed                  expression.failed        422   2
      CodecError                        codec                    500   1   an event that cannot be read
      Unlawful                          internal.unlawful        500   1   a bug of ours: a fact that may not follow

A message says where, what, and what to do: the user's words quoted, lower case, no full stop.
An exception carries its data as fields, so that no face ever parses a sentence.
"""

from __future__ import annotations

from typing import ClassVar


class MulliganError(Exception):
    """Anything Mulligan says no to."""

    code: ClassVar[str] = "mulligan"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data

    def render(self) -> str:
        """The message as a terminal shows it: code, what, and on the next line what to do."""
        text = f"error[{self.code}]: {self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


class Refused(MulliganError):
    """A verb that makes no sense for the run as it is. Nothing was changed."""

    code = "refused"
    http_status = 409
    exit_code = 2


class RunFinished(Refused):
    code = "run.finished"


class RunNotFinished(Refused):
    code = "run.not_finished"


class NothingToRetry(Refused):
    code = "run.nothing_to_retry"


class StepNotParked(Refused):
    code = "step.not_parked"


class StepNotWaitingForApproval(Refused):
    code = "step.not_waiting"


class NotFound(MulliganError):
    code = "not_found"
    http_status = 404
    exit_code = 2


class UnknownRun(NotFound):
    code = "run.unknown"


class UnknownStep(NotFound):
    code = "step.unknown"


class InputInvalid(MulliganError):
    code = "input.invalid"
    http_status = 422
    exit_code = 2


class ExpressionFailed(MulliganError):
    """An expression that could not be evaluated. Inside a run it becomes EXPRESSION_FAILED."""

    code = "expression.failed"
    http_status = 422
    exit_code = 2


class CodecError(MulliganError):
    code = "codec"


class Unlawful(MulliganError):
    """A fact that the table of lawful transitions does not know. It changes nothing."""

    code = "internal.unlawful"
