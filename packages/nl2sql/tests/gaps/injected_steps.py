"""Functions for a step that misbehaves. Tests copy this file beside a copy of the workflows, which call it."""

from __future__ import annotations

import os
import signal
from typing import Any

import mulligan


def raises(**_: Any) -> None:
    raise LookupError("injected")


def exits(**_: Any) -> None:
    os._exit(3)


def hangs(**_: Any) -> None:
    signal.pause()


def cancels(**_: Any) -> None:
    """Cancel the question from within, and hang: whoever cancels has to stop this, too."""
    with mulligan.Home() as home:
        home.get(int(os.environ["MULLIGAN_RUN_ID"])).cancel(reason="injected")
    signal.pause()
