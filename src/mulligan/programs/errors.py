"""What a program sees of failures, and what is said when it is used in a way that cannot work.

A module of the user imports this in a warm child, too: standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class StepFailed(Exception):
    """A call has failed, after retry, handler and triage have done what they could.

    `code` is what rules and routes match: `TIMEOUT`, `EXIT_NONZERO`, `EXCEPTION`, or the code of a `StepError`. `step`
    is the label of the call: `load#2`. Of a `gather`, `failures` has the failures of the other calls.

    If the step has raised an exception, `exception` is the name of its class (`httpx.ReadTimeout`, or `ValueError` of
    Python's own), and `exceptions` has that name and those of its bases: `failed.raised(httpx.TimeoutException)`.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        severity: str = "error",
        retryable: bool = True,
        details: dict[str, Any] | None = None,
        trace: str = "",
        exit_code: int | None = None,
        step: str = "",
        attempt: int = 0,
        exceptions: tuple[str, ...] = (),
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.severity = severity
        self.retryable = retryable
        self.details: dict[str, Any] = details or {}
        self.trace = trace
        self.exit_code = exit_code
        self.step = step
        self.attempt = attempt
        self.exceptions = exceptions
        self.failures: tuple[StepFailed, ...] = ()

    @property
    def exception(self) -> str:
        """The name of the class that the step has raised; "" if it has failed otherwise."""
        return self.exceptions[0] if self.exceptions else ""

    def raised(self, *classes: type[BaseException]) -> bool:
        """Whether the step has raised an exception of one of these classes, or of a class derived from it."""
        from mulligan.values.exception_names import names_of

        return any(not set(names_of(kind)).isdisjoint(self.exceptions) for kind in classes)

    def __str__(self) -> str:
        what = f"{self.code}: {self.message}" if self.message else self.code
        return f"{self.step}: {what}" if self.step else what


class Rejected(StepFailed):
    """A person has refused (`APPROVAL_REFUSED`), or nobody has approved in time (`APPROVAL_EXPIRED`)."""


class ProgramError(RuntimeError):
    """A program does what no program can do: the message says what, and what to write instead.

    `code` is that of the failure of the program if nothing catches it.
    """

    def __init__(self, message: str, *, hint: str = "", code: str = "EXCEPTION") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.code = code


class ThreadRefused(ProgramError):
    """A program starts a thread. What has wanted the thread may fail of that in its own words, which nobody needs."""


class NotStorable(ProgramError, TypeError):
    """An argument or a result that cannot be stored."""


class FakesRefused(ValueError):
    """The fakes of a test do not fit its program: the message says which, and what to write."""


class Nondeterministic(BaseException):
    """The program asks for something else than what is recorded. It is no `Exception`, so that no program catches it.

    `recorded` and `asked` describe the calls, without values; one of them is None if there is no such call.
    """

    def __init__(self, message: str, *, recorded: dict[str, Any] | None, asked: dict[str, Any] | None) -> None:
        super().__init__(message)
        self.message = message
        self.recorded = recorded
        self.asked = asked


class Stopped(BaseException):
    """The program does not go on here: what it calls now does nothing."""
