"""Models that are asked over HTTP, or replayed from a file: one module for each wire format."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from mulligan.worker.models.answer_parts import Sink
    from mulligan.worker.models.request import ModelAnswer, ModelRequest
    from mulligan.worker.models.settings import Access, ModelKind, ModelSettings


class ModelModule(Protocol):
    """A module of this package that knows a wire format."""

    def ask(self, request: ModelRequest, settings: ModelSettings, access: Access, sink: Sink, /) -> ModelAnswer:
        """Ask the model and return its answer. Every failure is a StepError."""


def find_kind(kind: ModelKind) -> ModelModule:
    """Import a wire format when it is needed: a scripted agent needs no HTTP."""
    return cast(ModelModule, importlib.import_module(f"mulligan.worker.models.{kind}"))
