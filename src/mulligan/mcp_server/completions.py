"""Values that a client suggests while a person fills in a prompt or an address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mulligan.errors import MulliganError
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.runs.views.run_pages import StepQuery
from mulligan.service.service import Service

# As many as the protocol allows in one answer.
VALUES_MAX = 100
_RUNS_SEEN = 200


def complete(service: Service, name: str, begun: str, others: Mapping[str, str]) -> list[str]:
    """Values of an argument that begin with what was typed. None for an argument that it knows nothing about."""
    try:
        found = (value for value in _values(service, name, others) if value.startswith(begun))
        return [value for _, value in zip(range(VALUES_MAX), found, strict=False)]
    except MulliganError:
        return []  # a run that is not there has no steps to suggest


def _values(service: Service, name: str, others: Mapping[str, str]) -> Iterator[str]:
    if name == "run_id":
        for run in service.runs.page(RunQuery(limit=_RUNS_SEEN)).runs:
            yield str(run.run_id)
    elif name in ("step", "place"):
        number = others.get("run_id", "")
        if number.isascii() and number.isdecimal():
            yield from (step.name for step in service.runs.step_page(int(number), StepQuery(limit=1000)).steps)
    elif name == "name":
        for workflow in service.catalogue.workflows(limit=VALUES_MAX).workflows:
            yield workflow.name
    elif name == "page":
        yield from sorted(service.documentation.pages)
    elif name == "stream":
        yield from ("stderr", "stdout")
