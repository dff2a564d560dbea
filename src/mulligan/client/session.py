"""Where the runs are: opens the service of one home for as long as a call or a `with` lasts."""

from __future__ import annotations

import os
import shlex
import threading
from types import TracebackType

from mulligan.errors import MulliganError
from mulligan.service.home import Home
from mulligan.service.service import Service, open_service


class Session:
    """The home of runs, and the name in which this program changes them.

    Between `open` and `close` the thread that opened it uses one connection. Any other use, also from another thread,
    from a forked process or after `close`, opens a connection for the call alone. So a run can be used anywhere and
    for as long as the program likes, and leaves nothing open.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, by: str = "", token: str = "") -> None:
        given = None if folder is None else os.fspath(folder)
        # The home is found once: a later change of the folder or of the environment does not move the runs.
        with ExplainedErrors():
            service = open_service(given, by, token)
        self.by = by
        # The folder as the program gave it; None for the default.
        self.given = given
        self._home = service.home
        self._open: Service | None = None
        self._owner = (0, 0)
        # The option with which a command finds the same runs.
        self.option = f" --home {shlex.quote(given)}" if given else ""

    @property
    def folder(self) -> str:
        """The folder with the logs and, unless a server has it, the database."""
        return str(self._home.folder)

    @property
    def place(self) -> str:
        """The home as messages name it."""
        return self._home.place

    @property
    def is_remote(self) -> bool:
        """Whether a server has the runs, and its workers drive them."""
        return self._home.is_remote

    def service(self) -> ServiceCall:
        """The service, for one call: `with session.service() as service`."""
        is_ours = self._open is not None and self._owner == _here()
        return ServiceCall(self._home, self._open if is_ours else None, self.by)

    def open(self) -> None:
        """Keep one connection for the calls of this thread."""
        if self._open is None:
            self._open, self._owner = Service(self._home, self.by), _here()

    def close(self) -> None:
        """Close that connection. In a forked process it belongs to the parent, and stays open there."""
        service, self._open = self._open, None
        if service is not None and self._owner == _here():
            service.close()


def _here() -> tuple[int, int]:
    """This process and this thread."""
    return os.getpid(), threading.get_ident()


class ServiceCall:
    """The service while a call lasts. Errors are shown as `explain` says."""

    def __init__(self, home: Home, shared: Service | None, by: str) -> None:
        self._home = home
        self._service = shared or Service(home, by)
        self._is_shared = shared is not None

    def __enter__(self) -> Service:
        return self._service

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not self._is_shared:
            self._service.close()
        if isinstance(error, OSError) and self._home.holds(error.filename):
            trouble = self._home.trouble(error)
            explain(trouble)
            raise trouble from error
        explain(error)


class ExplainedErrors:
    """Errors of what needs no service, shown as `explain` says."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        explain(error)


def explain(error: BaseException | None) -> None:
    """Show an error of ours as a program needs it: with its hint below the message, and without our own frames.

    A refusal says what is wrong with what the program gave. Where we noticed it helps only us: MULLIGAN_DEBUG keeps it.
    """
    if not isinstance(error, MulliganError):
        return
    if error.hint and error.hint not in getattr(error, "__notes__", ()):
        error.add_note(error.hint)
    if not os.environ.get("MULLIGAN_DEBUG"):
        error.__traceback__ = None
