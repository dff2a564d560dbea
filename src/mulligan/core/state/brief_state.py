"""A state for readers of a large run: its steps are decoded one by one, when somebody asks for them.

The status of a step is known without that, and is all that most readers want of most steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import Place, State


class LazyPlaces(dict[str, Place]):
    """Places by key. The steps are made when they are asked for; who asks for all places gets all, steps first."""

    def __init__(self, keys: Iterable[str], make: Callable[[str], Place]) -> None:
        # Those that are not made yet, in their order.
        self._unmade = dict.fromkeys(keys)
        self._order = tuple(self._unmade)
        self._make = make

    def __missing__(self, key: str) -> Place:
        if key not in self._unmade:
            raise KeyError(key)
        self[key] = place = self._make(key)
        del self._unmade[key]
        return place

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._unmade

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._unmade else super().get(key, default)

    def __len__(self) -> int:
        return super().__len__() + len(self._unmade)

    def __iter__(self) -> Iterator[str]:
        self._make_all()
        return super().__iter__()

    def keys(self) -> Any:
        self._make_all()
        return super().keys()

    def values(self) -> Any:
        self._make_all()
        return super().values()

    def items(self) -> Any:
        self._make_all()
        return super().items()

    def __eq__(self, other: object) -> bool:
        self._make_all()
        return super().__eq__(other)

    __hash__ = None

    def besides(self) -> list[Place]:
        """The places that are not among the steps."""
        steps = frozenset(self._order)
        return [place for key, place in super().items() if key not in steps]

    def _make_all(self) -> None:
        if self._unmade:
            steps = {key: self[key] for key in self._order}
            others = self.besides()
            self.clear()
            self.update(steps)
            self.update((place.key, place) for place in others)


class BriefState(State):
    """A state whose steps are decoded when they are asked for. It is for reading alone."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        super().__init__(workflow, graph)
        self._statuses: Mapping[str, str] = {}

    def add_steps(self, statuses: Mapping[str, str], make: Callable[[str], Place]) -> None:
        """Add all steps: the status of each, and how to make its place."""
        self._statuses = statuses
        self.places = LazyPlaces(statuses, make)

    def status_of(self, name: str) -> str:
        return self._statuses[name]

    def statuses(self) -> Iterator[str]:
        yield from self._statuses.values()
        yield from (place.status for place in self._besides())

    def others(self) -> Iterator[Place]:
        return (place for place in self._besides() if place.role != "step")

    def _besides(self) -> list[Place]:
        return self.places.besides() if isinstance(self.places, LazyPlaces) else []
