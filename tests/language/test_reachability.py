"""Reachability in a large graph: the same answers as walking it, at the cost of a few sweeps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.language.checks.reachability import Reachability, find_cycle

NAMES = "abcdefgh"
GRAPHS = st.fixed_dictionaries({name: st.lists(st.sampled_from(NAMES), max_size=3) for name in NAMES})


def walked(links: dict[str, list[str]], source: str) -> set[str]:
    """Everything that can be reached from `source` by at least one link."""
    found: set[str] = set()
    front = list(links[source])
    while front:
        vertex = front.pop()
        if vertex not in found:
            found.add(vertex)
            front += links[vertex]
    return found


@settings(max_examples=examples(40, 100))
@given(GRAPHS)
def test_every_answer_is_that_of_a_walk(links: dict[str, list[str]]) -> None:
    pairs = {(source, target) for source in NAMES for target in NAMES}

    held = Reachability(links).connected(pairs)

    assert held == {(source, target) for source in NAMES for target in walked(links, source)}


@settings(max_examples=examples(40, 100))
@given(GRAPHS)
def test_what_leads_to_another_comes_before_it(links: dict[str, list[str]]) -> None:
    reach = Reachability(links)

    for source in NAMES:
        for target in walked(links, source):
            assert reach.rank(source) <= reach.rank(target)


@settings(max_examples=examples(40, 100))
@given(GRAPHS)
def test_a_cycle_is_found_if_and_only_if_there_is_one(links: dict[str, list[str]]) -> None:
    cycle = find_cycle(links)

    has_one = any(name in walked(links, name) for name in NAMES)
    assert bool(cycle) == has_one
    assert all(after in links[before] for before, after in pairwise(cycle))
    assert cycle[:1] == cycle[-1:]


def test_a_chain_of_many_thousands_needs_no_recursion() -> None:
    size = 50_000
    links = {str(i): [str(i + 1)] if i + 1 < size else [] for i in range(size)}

    held = Reachability(links).connected({("0", str(size - 1)), (str(size - 1), "0"), ("7", "7")})

    assert held == {("0", str(size - 1))}
