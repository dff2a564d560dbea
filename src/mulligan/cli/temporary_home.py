"""A home for runs of which nothing is to be kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from mulligan.cli.options import service_at
from mulligan.service.home import Home
from mulligan.service.verbs import Service


@contextmanager
def service_kept_or_not(home: str | None) -> Iterator[Service]:
    """The verbs over the home that was asked for; else over one that goes when we do, whatever store is set."""
    with ExitStack() as stack:
        if home is not None:
            yield stack.enter_context(service_at(home))
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mulligan-"))
        yield stack.enter_context(closing(Service(Home(Path(folder) / "home"))))
