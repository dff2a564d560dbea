"""What recorded runs say about something that did not happen: how often it worked, and how sure that is."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Literal, NamedTuple

import msgspec

from mulligan.analysis.statistics import wilson_bounds
from mulligan.analysis.whatif.attempt_names import Circumstances, FailureKind, failure_kind, general_place
from mulligan.analysis.whatif.recording import Recording
from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name

# Which end of the interval an outcome is drawn with.
Level = Literal["low", "middle", "high"]


class Share(msgspec.Struct, frozen=True):
    """How often something worked."""

    worked: int = 0
    tried: int = 0

    @property
    def middle(self) -> float:
        return self.worked / self.tried if self.tried else 0.0

    def at(self, level: Level) -> float:
        """The share, or an end of its interval."""
        if level == "middle":
            return self.middle
        low, high = wilson_bounds(self.worked, self.tried)
        return low if level == "low" else high


class Subject(NamedTuple):
    """What is counted together: a place without its numbers, how it came to the attempt, and the failure before it.

    `kind`: `first`, `again`, `repaired` (after a recovery script or a handler), `decision` of a person.
    """

    place: str
    kind: str
    failure: FailureKind | None = None


class _Seen:
    """The outcomes of one subject."""

    def __init__(self) -> None:
        self.worked = 0
        self.failed: dict[FailureKind, int] = {}
        self.worked_seconds = self.failed_seconds = 0.0
        # An example for each kind of outcome: the last that was recorded.
        self.success: e.AttemptSucceeded | None = None
        self.failures: dict[FailureKind, e.AttemptFailed] = {}

    @property
    def share(self) -> Share:
        return Share(self.worked, self.worked + sum(self.failed.values()))

    def add(self, end: e.AttemptSucceeded | e.AttemptFailed, seconds: float) -> None:
        if isinstance(end, e.AttemptSucceeded):
            self.worked += 1
            self.worked_seconds += seconds
            self.success = end
        else:
            kind = failure_kind(end.failure)
            self.failed[kind] = self.failed.get(kind, 0) + 1
            self.failed_seconds += seconds
            self.failures[kind] = end


class _Decided:
    """The verdicts of people on one kind of failure of a step."""

    def __init__(self) -> None:
        self.retry = self.fail = 0
        self.seconds = 0.0


class Drawn(msgspec.Struct, frozen=True):
    """An outcome that was drawn, what it was drawn from, and how long it takes."""

    end: e.AttemptSucceeded | e.AttemptFailed
    seconds: float
    subject: Subject
    share: Share


class DrawnVerdict(msgspec.Struct, frozen=True):
    """A decision that was drawn: what people decided about such failures."""

    verdict: Literal["retry", "fail"]
    wait: timedelta
    subject: Subject
    share: Share


class Draw(NamedTuple):
    """Where chance comes from: the same seed gives the same outcomes, whatever else is drawn."""

    seed: int
    run_id: int
    level: Level = "middle"

    def number(self, *what: object) -> float:
        """A number from 0 to 1 that depends on nothing but the seed, the run and `what`."""
        text = ":".join(map(str, (self.seed, self.run_id, *what)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


class Knowledge:
    """What is learned from all recorded runs of a workflow."""

    def __init__(self) -> None:
        self._seen: dict[Subject, _Seen] = {}
        self._decided: dict[Subject, _Decided] = {}

    def add(self, recording: Recording) -> None:
        """Learn from a run. What a fork took over from another run is learned from that run."""
        since = recording.forked_at
        for attempt in recording.attempts.values():
            if since is not None and attempt.ended_at is not None and attempt.ended_at < since:
                continue
            if isinstance(attempt.end, e.AttemptSucceeded | e.AttemptFailed):
                for subject in subjects(attempt.key, attempt.circumstances, attempt.failure):
                    self._seen.setdefault(subject, _Seen()).add(attempt.end, attempt.seconds or 0.0)
        for decision in recording.decisions.values():
            if since is not None and decision.decided_at is not None and decision.decided_at < since:
                continue
            if decision.fact is not None and decision.decided_at is not None:
                subject = Subject(step_name(decision.name.place), "decision", decision.failure)
                decided = self._decided.setdefault(subject, _Decided())
                decided.retry += decision.fact.verdict == "retry"
                decided.fail += decision.fact.verdict != "retry"
                decided.seconds += (decision.decided_at - decision.parked_at).total_seconds()

    def draw(
        self, key: str, circumstances: Circumstances, failure: FailureKind | None, draw: Draw, name: object
    ) -> Drawn | None:
        """How an attempt ends that never happened; None if nothing is known about it."""
        for subject in subjects(key, circumstances, failure):
            seen = self._seen.get(subject)
            if seen is not None:
                break
        else:
            return None
        share = seen.share
        works = draw.number(name, "works") < share.at(draw.level)
        if (works and seen.success is not None) or not seen.failed:
            # Without any failure the interval says that there may be one, but not which.
            end, seconds = seen.success, seen.worked_seconds / max(1, seen.worked)
            return None if end is None else Drawn(end, seconds, subject, share)
        kind = _choose(seen.failed, draw.number(name, "how"))
        return Drawn(seen.failures[kind], seen.failed_seconds / sum(seen.failed.values()), subject, share)

    def draw_verdict(self, step: str, failure: FailureKind, draw: Draw, name: object) -> DrawnVerdict | None:
        """What a person decides about a failure that nobody has seen; None if nobody decided about such a failure."""
        subject = Subject(step, "decision", failure)
        decided = self._decided.get(subject)
        if decided is None:
            return None
        share = Share(decided.retry, decided.retry + decided.fail)
        verdict: Literal["retry", "fail"] = "retry" if draw.number(name, "verdict") < share.at(draw.level) else "fail"
        return DrawnVerdict(verdict, timedelta(seconds=decided.seconds / share.tried), subject, share)


def subjects(key: str, circumstances: Circumstances, failure: FailureKind | None) -> tuple[Subject, ...]:
    """What an attempt is counted under, the most specific first: with the failure before it, then with any."""
    place = general_place(key)
    if circumstances.kind == "entered" or failure is None:
        return (Subject(place, "first"),)
    kind = "again" if circumstances.kind == "again" and circumstances.repair is None else "repaired"
    return Subject(place, kind, failure), Subject(place, kind)


def _choose(counts: dict[FailureKind, int], number: float) -> FailureKind:
    """One of the kinds, each as probable as it was frequent."""
    kinds = sorted(counts, key=lambda kind: (kind.code, kind.exit_code or 0))
    left = number * sum(counts.values())
    for kind in kinds:
        left -= counts[kind]
        if left < 0:
            return kind
    return kinds[-1]
