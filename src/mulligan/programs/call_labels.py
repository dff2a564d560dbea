"""The labels that the core gives to the calls of a program, computed where the program runs.

So an inline step has its label, and what follows from that, before anybody has recorded it.
"""

from __future__ import annotations

from mulligan.core.model.program_calls import by_number, free_label, label_of, name_of
from mulligan.programs import messages as m


class CallLabels:
    """Names the calls of a program one after the other, as the core does when it records them."""

    def __init__(self, program: str = "", history: m.History | None = None) -> None:
        self._program = program
        self._made: set[str] = set()
        self._dropped: dict[str, m.DroppedCall] = {}
        # How many labels a name has, and which dropped call is made again in its place.
        self._numbers: dict[str, int] = {}
        self._again: dict[tuple[m.CallId, str], str] = {}
        # By branch, name and arguments: the dropped calls whose results the next such calls get.
        self._results: dict[tuple[str, str, str], list[str]] = {}
        if history is not None:
            self._load(history)

    def _load(self, history: m.History) -> None:
        self._made.update(one.label for one in history.calls)
        for one in sorted(history.dropped, key=lambda one: (one.id.ordinal, one.label)):
            name = name_of(one.label)
            self._dropped[one.label] = one
            if one.has_result:
                self._results.setdefault((one.id.branch, name, one.digest), []).append(one.label)
        for label in sorted(self._dropped, key=by_number):
            self._again[self._dropped[label].id, name_of(label)] = label
        for label in self._made | self._dropped.keys():
            name = name_of(label)
            self._numbers[name] = self._numbers.get(name, 0) + 1

    def next(self, identity: m.CallId, name: str, *, key: str = "", kind: m.CallKind = "step", digest: str = "") -> str:
        """The label that this call gets if it is made now."""
        if not (self._dropped or key):
            label = label_of(name, self._numbers.get(name, 0) + 1, "")
            if label not in self._made and label != self._program:
                return label
        if kind == "step" and (results := self._results.get((identity.branch, name, digest))):
            return results[0]
        again = self._again.get((identity, name), "")
        if again and again not in self._made and not self._has_result(again):
            return again
        return free_label(name, self._numbers.get(name, 0) + 1, key, self._is_taken)

    def _has_result(self, label: str) -> bool:
        one = self._dropped[label]
        return label in self._results.get((one.id.branch, name_of(label), one.digest), ())

    def _is_taken(self, label: str) -> bool:
        return label == self._program or label in self._made or label in self._dropped

    def add(self, identity: m.CallId, name: str, *, key: str = "", kind: m.CallKind = "step", digest: str = "") -> str:
        """The label of a call that is made."""
        label = self.next(identity, name, key=key, kind=kind, digest=digest)
        self.take(label, name)
        return label

    def take(self, label: str, name: str) -> None:
        """A call of this name is made that gets the next label."""
        self._made.add(label)
        if label not in self._dropped:
            self._numbers[name] = self._numbers.get(name, 0) + 1
        elif self._has_result(label):
            one = self._dropped[label]
            self._results[one.id.branch, name, one.digest].remove(label)

    def counts(self, label: str) -> tuple[int, int]:
        """The visit and the attempt of a call with this label that begins now."""
        before = self._dropped.get(label)
        return (1, 1) if before is None else (before.visit + 1, before.attempt + 1)
