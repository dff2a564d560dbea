"""What was promised: a bar and, where there is one, a stretch beyond it, and whether a measurement reached them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beside:
    """At least so many times as fast as a peer in the same run."""

    peer: str
    bar: float
    stretch: float | None = None


@dataclass(frozen=True, slots=True)
class AtMost:
    """No more than so many `seconds` or `megabytes`."""

    measure: str
    bar: float
    stretch: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of our numbers beside its bar."""

    what: str
    unit: str
    value: float
    bar: float
    stretch: float | None
    more_is_better: bool

    @property
    def is_met(self) -> bool:
        return self._reaches(self.bar)

    @property
    def is_stretch_met(self) -> bool | None:
        return None if self.stretch is None else self._reaches(self.stretch)

    def __str__(self) -> str:
        goals = f"bar {self.bar:g}{self.unit}: {_met(self.is_met)}"
        if self.stretch is not None:
            goals += f"; stretch {self.stretch:g}{self.unit}: {_met(self._reaches(self.stretch))}"
        return f"{self.what}: {self.value:.3g}{self.unit} ({goals})"

    def _reaches(self, goal: float) -> bool:
        return self.value >= goal if self.more_is_better else self.value <= goal


def _met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"
