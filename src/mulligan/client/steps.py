"""The steps, items and attempts of a run, as a program reads them.

They show the run at the moment at which they were asked for. Ask the run again for news.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.client.session import Session
from mulligan.core.model.workflow import END
from mulligan.errors import UnknownStep

if TYPE_CHECKING:
    from mulligan.core.model.failure import Failure
    from mulligan.service.runs.stored.artifacts import KeptFile
    from mulligan.service.runs.stored.attempts import AttemptRecord
    from mulligan.service.runs.views.items import Item as ItemRecord
    from mulligan.service.runs.views.run_snapshot import RunSnapshot
    from mulligan.worker.logs.progress_records import Progress


class NoSuchStep(UnknownStep, KeyError):
    """The run has no step of this name. A `KeyError`, since steps are looked up by name."""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def _failure(view: Mapping[str, Any] | None) -> Failure | None:
    from mulligan.core.model.failure import Failure

    return None if view is None else msgspec.convert(view, Failure)


def _whole(session: Session, output: Any) -> Any:
    """An output with what is kept in artifacts. A text or a number is whole already."""
    if not isinstance(output, dict | list):
        return output
    with session.service() as service:
        return service.runs.fetch_value(output)


class Attempt:
    """One attempt at a step, an item, a handler or a recovery script."""

    def __init__(self, session: Session, run_id: int, record: AttemptRecord) -> None:
        self._session = session
        self._run_id = run_id
        self._record = record

    @property
    def number(self) -> int:
        """1 for the first attempt."""
        return self._record.attempt

    @property
    def place(self) -> str:
        """What was attempted: the name of the step, `check[3]` for an item, `build.on_failure@1` for a handler."""
        return self._record.place

    @property
    def status(self) -> str:
        """`queued`, `running`, `succeeded`, `failed`, `lost`, `interrupted` or `cancelled`."""
        return self._record.status

    @property
    def failure(self) -> Failure | None:
        """Why it failed: `code`, `message`, `exit_code`, `details` and the rest; None if it did not."""
        return _failure(self._record.failure)

    @property
    def host(self) -> str:
        """The host that it ran on; "" before it started."""
        return self._record.host

    @property
    def round(self) -> int:
        """The round of the run: 1, and one more for each `retry`."""
        return self._record.round

    @property
    def started_at(self) -> datetime | None:
        """When it started; None before."""
        return self._record.started_at

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None before."""
        return self._record.ended_at

    @property
    def seconds(self) -> float | None:
        """How long it took, as measured where it ran; None if that is not known."""
        return self._record.wall_seconds

    @property
    def peak_memory(self) -> int | None:
        """The most memory that it used, in bytes; None if that was not measured."""
        return self._record.peak_memory

    @property
    def progress(self) -> Progress | None:
        """What it reported last: `done`, `total`, `text`; None if it reported nothing."""
        return self._record.progress

    @property
    def artifacts(self) -> list[KeptFile]:
        """The files that it kept with `mulligan.artifact`: `file` is the name of each, `path` where it is."""
        return self._record.artifacts

    @property
    def stdout(self) -> str:
        """What it has written to stdout, read from its log."""
        return self._log[0].decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it has written to stderr, read from its log."""
        return self._log[1].decode("utf-8", "replace")

    @property
    def _log(self) -> tuple[bytes, bytes]:
        with self._session.service() as service:
            found = service.logs.attempt_log(self._run_id, self._record.place, self._record.attempt)
        return found.stdout, found.stderr

    def __repr__(self) -> str:
        why = "" if self.failure is None else f" with {self.failure.code}"
        took = "" if self.seconds is None else f" in {self.seconds:.1f}s"
        return f"<Attempt {self.number} at {self.place!r}: {self.status}{why}{took}>"


class Item:
    """One item of a map step."""

    def __init__(self, session: Session, record: ItemRecord) -> None:
        self._session = session
        self._record = record

    @property
    def index(self) -> int:
        """Its place in the list that the step maps over, from 0."""
        return self._record.index

    @property
    def value(self) -> Any:
        """The element of that list."""
        return self._record.item

    @property
    def status(self) -> str:
        """How it is: `waiting`, `running`, `completed`, `failed`, `cancelled`, `not started` and the like."""
        return self._record.status

    @property
    def failure(self) -> Failure | None:
        """Why it failed; None if it did not."""
        return _failure(self._record.failure)

    @cached_property
    def output(self) -> Any:
        """Its output; None before it has one."""
        return _whole(self._session, self._record.output)

    @cached_property
    def attempts(self) -> list[Attempt]:
        """Every attempt at it, the first one first."""
        run_id = self._record.run_id
        with self._session.service() as service:
            history = service.runs.item_history(run_id, self._record.step, self.index).history
        return [Attempt(self._session, run_id, one) for one in history or ()]

    def __repr__(self) -> str:
        why = "" if self.failure is None else f" with {self.failure.code}"
        return f"<Item {self.index} of {self._record.step!r}: {self.status}{why}>"


class Step:
    """One step of a run."""

    def __init__(self, run: StepsOfRun, name: str) -> None:
        self._run = run
        self._name = name
        self._place = run.snapshot.place(name)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def status(self) -> str:
        """How it is now: `waiting`, `ready`, `running`, `backing_off`, `handling`, `pending_failed` (parked).

        Or how it ended: `completed`, `failed`, `skipped`, `cancelled`.
        """
        return self._place.status

    @property
    def failure(self) -> Failure | None:
        """Why it failed, also if a handler recovered it; None if nothing failed."""
        return self._place.failure

    @property
    def is_handled(self) -> bool:
        """Whether it failed and a failure edge led to a step that dealt with it."""
        from mulligan.service.runs.views.run_view import has_handled_failure

        return has_handled_failure(self._run.snapshot.state, self._place)

    @property
    def recovered_by(self) -> str:
        """The strategy of the handler that recovered it; "" if none did."""
        return self._place.recovered_by

    @property
    def visits(self) -> int:
        """How often it was entered: more than once in a loop, or if it is run again after a repair."""
        return self._place.visit

    @property
    def warnings(self) -> tuple[Failure, ...]:
        """What went wrong without making it fail, such as a failed handler."""
        return self._place.warnings

    @property
    def up_to_date_since(self) -> int | None:
        """The run whose result was taken over because nothing had changed; None if the step ran."""
        return self._place.reused_run_id or None

    @cached_property
    def output(self) -> Any:
        """Its output, as JSON gives it; None before it has one."""
        return _whole(self._run.session, self._place.output)

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt at it, over all rounds, the first one first. Those of a map step are with its items."""
        return [one for one in self._run.attempts_at(self.name) if "@" not in one.place]

    @property
    def handler_attempts(self) -> list[Attempt]:
        """Every attempt at its handlers, its undo and its recovery scripts."""
        return [one for one in self._run.attempts_at(self.name) if "@" in one.place]

    @cached_property
    def items(self) -> Sequence[Item]:
        """The items of a map step, in order; none for any other step."""
        state = self._run.snapshot.state
        if not state.places or state.step(self.name).map is None:
            return ()
        with self._run.session.service() as service:
            found = service.runs.list_items(self._run.run_id, self.name)
        return tuple(Item(self._run.session, one) for one in found)

    def __repr__(self) -> str:
        failure = f" with {self.failure.code}" if self.failure is not None and self.status == "failed" else ""
        return f"<Step {self.name!r}: {self.status}{failure}>"


class StepsOfRun(Mapping[str, Step]):
    """The steps of a run by name, in the order of the workflow."""

    def __init__(self, session: Session, snapshot: RunSnapshot) -> None:
        self.session, self.snapshot = session, snapshot
        self.run_id, graph = snapshot.run_id, snapshot.state.graph
        self._matrices = graph.matrices
        self._steps = {name: Step(self, name) for name in graph.nodes}
        self.end = Step(self, END) if snapshot.state.places else None

    def __getitem__(self, name: str) -> Step:
        found = self._steps.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._steps

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        return f"<{len(self)} steps of run {self.run_id}: {', '.join(f'{s.name} {s.status}' for s in self.values())}>"

    def matrix(self, name: str) -> list[Step]:
        """The steps of a matrix, in the order of its combinations."""
        if name not in self._matrices:
            from mulligan.language.text.suggestions import did_you_mean

            hint = did_you_mean(name, self._matrices) or "run.steps[name] is a single step"
            raise NoSuchStep(f"run {self.run_id} has no matrix '{name}'", hint=hint, step=name)
        return [self._steps[step] for step in self._matrices[name]]

    def attempts_at(self, step: str) -> list[Attempt]:
        """Every attempt at a step, its handlers and scripts."""
        return self._attempts.get(step, [])

    @cached_property
    def _attempts(self) -> dict[str, list[Attempt]]:
        """Read once for all steps, since all are in one log."""
        with self.session.service() as service:
            found = service.runs.attempts(self.run_id)
        return {name: [Attempt(self.session, self.run_id, one) for one in some] for name, some in found.items()}

    def _unknown(self, name: str) -> NoSuchStep:

        if steps := self._matrices.get(name):
            hint = f"run.steps.matrix({name!r}) has them; one is '{steps[0]}'"
            return NoSuchStep(f"'{name}' is a matrix of {len(steps):,} steps", hint=hint, step=name)
        from mulligan.language.text.suggestions import did_you_mean

        return NoSuchStep(
            f"run {self.run_id} has no step '{name}'",
            hint=did_you_mean(str(name), [*self._steps, *self._matrices]),
            step=name,
        )
