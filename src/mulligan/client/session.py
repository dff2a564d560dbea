"""Where the runs are: opens the service of one home for as long as a call or a `with` lasts."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mulligan.errors import MulliganError
from mulligan.service import Service, open_service


class Session:
    """The home of runs, and the name in which this program changes them.

    Between `open` and `close` the thread that opened it uses one connection. Any other use, also from another thread,
    from a forked process or after `close`, opens a connection for the call alone. So a run can be used anywhere and
    for as long as the program likes, and leaves nothing open.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, by: str = "") -> None:
        given = None if folder is None else os.fspath(folder)
        # The home is found once: a later change of the folder or of the environment does not move the runs.
        with explained_errors():
            service = open_service(given, by)
        self.by = by
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

    @contextmanager
    def service(self) -> Iterator[Service]:
        """The service, for one call."""
        with explained_errors():
            if self._open is not None and self._owner == _here():
                yield self._open
            else:
                with Service(self._home, self.by) as service:
                    yield service

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


@contextmanager
def explained_errors() -> Iterator[None]:
    """Add the hint of an error to its traceback, which shows only the message otherwise."""
    try:
        yield
    except MulliganError as error:
        if error.hint and error.hint not in getattr(error, "__notes__", ()):
            error.add_note(error.hint)
        raise
