"""Expressions that would take long: none of them holds anybody up, and each says which limit it met."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Mapping
from typing import Any

import pytest

from mulligan.errors import ExpressionFailed
from mulligan.language.cel import cel, cel_process
from mulligan.language.cel.cel import CelFailed
from mulligan.language.cel.cel_analysis import analyse
from mulligan.language.cel.cel_cost import DIRECT_SECONDS_MAX, Size, close_size, cost, rough_size
from mulligan.language.cel.cel_process import Limits
from mulligan.language.cel.cel_tokens import tokens
from mulligan.language.expressions import check, evaluate

# Enough for a process to do anything at all in, and soon over.
SHORT = Limits(cpu_seconds=0.1)
NUMBERS = list(range(3_000))


@pytest.fixture(params=["google", "rust"])
def engine(request: pytest.FixtureRequest) -> cel.Engine:
    return cel.engine(request.param)


def apart(engine: cel.Engine, source: str, limits: Limits = SHORT, **names: Any) -> Any:
    return cel_process.evaluate(engine.compile(source), names, limits)


# -- in a process of its own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("n + 1", 4),
        ("1.0 * x", 2.0),
        ("[n, null, true, 'é', {'b': 1, 'a': [2.5]}]", [3, None, True, "é", {"a": [2.5], "b": 1}]),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_the_value_is_the_same_as_without_it(engine: cel.Engine, source: str, value: Any) -> None:
    names: dict[str, Any] = {"n": 3, "x": 2.0}

    found = apart(engine, source, **names)

    assert json.dumps(found) == json.dumps(value)
    assert json.dumps(cel.plain(engine.compile(source).evaluate(names))) == json.dumps(value)


def test_an_expression_that_fails_says_why_as_it_does_without_it(engine: cel.Engine) -> None:
    with pytest.raises(CelFailed, match=r"^division by zero$"):
        apart(engine, "1 / (n - 3)", n=3)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("l.map(x, x + 1)", {"l": NUMBERS}),
        ("l.all(x, l.all(y, l.all(z, size(t + t) > 0)))", {"l": [0] * 20, "t": "x" * 1_000_000}),
        ("l.map(x, m)", {"l": [0] * 1_000, "m": NUMBERS}),
    ],
)
def test_what_takes_too_long_is_ended(engine: cel.Engine, source: str, names: dict[str, Any]) -> None:
    with pytest.raises(CelFailed, match=r"^it takes more than 0\.1 s to evaluate: do this work in a step$"):
        apart(engine, source, **names)


def test_what_takes_too_much_memory_is_ended(engine: cel.Engine) -> None:
    limits = Limits(cpu_seconds=10.0, wall_seconds=20.0, memory_bytes=32 << 20)

    with pytest.raises(CelFailed, match="memory"):
        apart(engine, "size(s + s + s + s + s + s + s + s)", limits, s="x" * 8_000_000)


def test_a_value_that_is_too_large_to_be_kept_is_not_taken_over(engine: cel.Engine) -> None:
    limits = Limits(value_bytes=1 << 20)

    assert len(apart(engine, "s", limits, s="x" * ((1 << 20) - 2))) == (1 << 20) - 2
    with pytest.raises(CelFailed, match=r"^its value has more than 1 MiB as JSON$"):
        apart(engine, "s", limits, s="x" * (1 << 20))


class _Sleeps:
    """A program that takes no processor time, and never ends."""

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        del names
        time.sleep(1000)


class _Dies:
    def evaluate(self, names: Mapping[str, Any]) -> Any:
        del names
        os.abort()


def test_a_process_that_says_nothing_is_ended() -> None:
    with pytest.raises(CelFailed, match="it takes more than 1 s"):
        cel_process.evaluate(_Sleeps(), {}, Limits(wall_seconds=0.05))


def test_a_process_that_dies_is_no_value() -> None:
    with pytest.raises(CelFailed, match="MiB of memory"):
        cel_process.evaluate(_Dies(), {})


def test_a_value_that_was_not_written_to_its_end_is_none() -> None:
    with pytest.raises(CelFailed, match="MiB of memory"):
        cel_process._decode_answer(b"v[1, 2", -9, SHORT)


def test_where_no_process_can_be_started_the_expression_fails_and_nothing_stays_open() -> None:
    before = os.listdir("/proc/self/fd")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        with pytest.raises(CelFailed, match=r"^no process can be started to evaluate it: "):
            cel_process.evaluate(_Dies(), {})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)

    assert os.listdir("/proc/self/fd") == before


def test_nothing_that_the_process_has_open_stays_open_and_no_process_is_left() -> None:
    before = os.listdir("/proc/self/fd")
    reader, writer = os.pipe()

    class Looks:
        def evaluate(self, names: Mapping[str, Any]) -> Any:
            del names
            return [os.getpid(), sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) in (reader, writer))]

    pid, still_open = cel_process.evaluate(Looks(), {})
    os.close(reader)
    os.close(writer)

    assert (still_open, os.listdir("/proc/self/fd")) == ([], before)
    # Other tests of this process may have children that live longer than they do.
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


# -- how long it may take --------------------------------------------------------------------------------------------


def seconds(source: str, size: Size, *, copies_deeply: bool = False) -> float:
    found = tokens(source)
    return cost(found, reads_around=analyse(found).reads_around).seconds_max(size, copies_deeply=copies_deeply)


SMALL = Size(bytes=200, values=20, items=5)
ROWS = Size(bytes=10_000, values=900, items=100)


@pytest.mark.parametrize(
    "source",
    [
        "a.b == 'x' && c > 3",
        "a.filter(x, x.status == 'failed')",
        "a.map(x, x.name + ':' + x.kind).join(',')",
        "a.exists(x, x.tags.exists(y, y == 'z'))",
        "a.replace(' ', '_').lowerAscii()",
        "a.contains(b) || a.indexOf(b) > 0 || size(a.split(b)) > 1",
        "a.matches('^v[0-9]+$')",
        "a.filter(x, x.name.matches('^v[0-9]+$'))",
    ],
)
def test_what_is_ordinary_is_evaluated_at_once(source: str) -> None:
    assert seconds(source, SMALL) < DIRECT_SECONDS_MAX / 5


@pytest.mark.parametrize(
    ("source", "size"),
    [
        ("a.matches(r'^\\d{4}-\\d{2}-\\d{2}$')", SMALL),
        ("a.matches('(?i)^v[0-9]+[a-z]$')", SMALL),
        ("a.matches('^v[0-9]+$')", SMALL._replace(bytes=10_000)),
        ("a.contains(b)", SMALL._replace(bytes=10_000)),
        ("a.matches('^[0-9a-f]{40}$')", SMALL),
        ("a.contains('error') || a.indexOf('--') > 3", SMALL._replace(bytes=1_000_000)),
        # A field that has the name of a function is not a call.
        ("a.matches == 1 && a.contains > b.indexOf", SMALL._replace(bytes=1_000_000)),
    ],
)
def test_short_patterns_and_short_searches_are_evaluated_at_once(source: str, size: Size) -> None:
    assert seconds(source, size) < DIRECT_SECONDS_MAX


def test_a_filter_over_a_hundred_maps_is_evaluated_at_once() -> None:
    assert seconds("a.filter(x, x.status == 'failed')", ROWS) < DIRECT_SECONDS_MAX
    assert seconds("a.filter(x, x.status == 'failed')", ROWS, copies_deeply=True) < DIRECT_SECONDS_MAX


@pytest.mark.parametrize(
    ("source", "size"),
    [
        # Both engines copy the list at each item: the time is the square of its length.
        ("a.map(x, x)", Size(10_000, 5_000, 5_000)),
        ("a.all(x, a.all(y, a.all(z, true)))", ROWS),
        # What is read from around a loop may be compared, or come out of it, each time.
        ("a.all(x, a == b)", ROWS._replace(values=20_000)),
        ("a.map(x, b)", ROWS._replace(values=20_000)),
        ("[[s, a]].all(p, p[1].all(x, size(p[0]) > 0))", Size(5_000_000, 120, 100)),
        # Small data, and a value that doubles again and again.
        ("['a']" + ".map(x, x + x)" * 25, Size(2, 1, 0)),
        ("['a']" + ".map(x, [x, x])" * 25, Size(2, 1, 0)),
        # A text may have as many parts as characters, and each may become as long as all of it.
        ("s.split('').map(x, s)", Size(5_000, 2, 1)),
        ("s.replace('', s)", Size(50_000, 2, 1)),
        ("a.join(s)", Size(50_000, 2_000, 2_000)),
        ("s.matches(t)", Size(500_000, 3, 2)),
        # To compile a pattern may take 0.3 s: one that is not written there, or is computed, may be like that.
        ("a.all(x, !x.matches(p))", Size(300, 45, 40)),
        ("a.matches(p)", SMALL),
        ("a.matches('x' + p)", SMALL),
        ("[r'\\pL{150}'].all(p, a.matches(p))", SMALL),
        (r"a.matches(r'(?i)\pL{15}\pN')", SMALL),
        (r"a.matches('\\pL')", SMALL),
        (r"a.matches('(a|b)\x7b900}')", SMALL),
        (r"a.matches(r'(?i)[\x{100}-\x{10ff00}]')", SMALL),
        ("a.matches('(?i)[\u0100-\U0010ff00]')", SMALL),
        ("a.matches('((a{9}){99}){99}')", SMALL),
        (r"a.matches(r'(?i)" + r"[\S]" * 20 + "')", SMALL),
        ("a.all(x, x.matches('(?i)[b[^a]]'))", ROWS),
        ("a.all(x, x.matches('^[0-9a-f]{40}$'))", ROWS),
        ("s.matches('(a|b)*a(a|b){900}c')", Size(60_000, 2, 1)),
        ("s.matches('(a|b)*a........................................c')", Size(60_000, 2, 1)),
        # A search compares all of what it searches for at each place of the text.
        ("s.contains(t)", Size(1_500_000, 3, 2)),
        ("s.indexOf(t)", Size(150_000, 3, 2)),
        ("s.lastIndexOf(t) > 0", Size(150_000, 3, 2)),
        ("s.split(t)[0]", Size(150_000, 3, 2)),
        ("s.replace(t, '')", Size(150_000, 3, 2)),
        ("s.contains('" + "a" * 4_000 + "b')", Size(1_000_000, 2, 1)),
        ("(s + s + s + s + s + s + s + s).contains(s + s + s + s + 'b')", Size(10_000, 2, 1)),
        ("a.all(x, s.contains(t))", Size(10_000, 103, 100)),
        ("a.all(x, '" + "a" * 5_000 + "'.contains('" + "a" * 2_500 + "b'))", Size(400, 101, 100)),
        # To hand it over alone takes as long.
        ("size(a)", Size(2_000_000, 1_000_000, 1_000_000)),
    ],
)
def test_what_may_take_long_is_known_before(source: str, size: Size) -> None:
    assert seconds(source, size) > DIRECT_SECONDS_MAX


def test_more_of_anything_never_takes_less() -> None:
    sources = (
        "a",
        "a.map(x, x)",
        "a.map(x, a)",
        "s.split(',').join(s)",
        "s.replace('a', s) + s",
        "s.matches(s)",
        "s.contains(s)",
    )
    sizes = [Size(n, n // 2 + 1, n // 2 + 1) for n in (0, 1, 10, 1_000, 100_000, 10**9)]

    for source in sources:
        found = [seconds(source, size) for size in sizes]
        assert found == sorted(found)
        assert all(map(float("inf").__gt__, found))


@pytest.mark.parametrize(
    ("source", "reads_around"),
    [
        ("a.map(x, x)", False),
        ("a.map(x, x.b.map(y, y))", False),
        ("a.map(x, a)", True),
        ("a.map(x, x.b.map(y, x))", True),
        ("a.map(x, x.b.map(x, x))", False),
    ],
)
def test_what_a_macro_reads_beside_its_item_is_found(source: str, reads_around: bool) -> None:
    assert analyse(tokens(source)).reads_around == reads_around


@pytest.mark.parametrize("value", [{}, {"a": [1, 2, [3, {"b": [1] * 9}]]}, {"a": "x,y:[{", "b": {"c": 1, "d": None}}])
def test_a_size_is_never_less_than_what_is_there(value: dict[str, Any]) -> None:
    rough = rough_size(cel.checked_json(value))
    close = close_size(value, rough)

    counted, most, pending = 0, 0, [value]
    while pending:
        one = pending.pop()
        counted += 1
        if isinstance(one, dict | list):
            most = max(most, len(one))
            pending += one.values() if isinstance(one, dict) else one
    assert rough.values >= counted
    assert rough.items >= close.items == most


# -- through the door ------------------------------------------------------------------------------------------------


def test_an_expression_that_takes_for_ever_fails_and_names_the_limit() -> None:
    source = "inputs.l.map(x, inputs.l == inputs.l)"

    with pytest.raises(ExpressionFailed) as failed:
        evaluate(check(source), {"inputs": {"l": list(range(200_000))}})

    assert failed.value.data["reason"] == "it takes more than 1 s to evaluate: do this work in a step"


def test_a_long_list_is_gone_through_in_time() -> None:
    # It takes a tenth of what it may: the limits are seconds, and the machine may be busy.
    numbers = list(range(1_500))

    assert evaluate(check("inputs.l.map(x, x + 1)"), {"inputs": {"l": numbers}}) == [n + 1 for n in numbers]
    assert seconds("l.map(x, x + 1)", Size(6_000, 1_500, 1_500)) > DIRECT_SECONDS_MAX


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("inputs.l.all(x, !x.matches(inputs.p))", {"l": ["short"] * 40, "p": r"(?i)\pL{150}\pN"}),
        ("inputs.s.contains(inputs.t)", {"s": "a" * 200_000, "t": "a" * 100_000 + "b"}),
        ("inputs.s.matches('(a|b)*a(a|b){900}c')", {"s": "ab" * 30_000}),
    ],
)
def test_a_slow_pattern_or_search_gets_a_process(source: str, inputs: dict[str, Any]) -> None:
    read = {"inputs": inputs}
    size = close_size(read, rough_size(cel.checked_json(read)))

    assert seconds(source, size) > DIRECT_SECONDS_MAX
