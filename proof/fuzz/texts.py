"""Targets that are short texts: expressions, templates, durations, sizes, patterns, queries, command lines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import msgspec

from mulligan import StepError
from mulligan.cli.words.dispatch import call_for
from mulligan.cli.words.given_inputs import given_inputs
from mulligan.core.deciding.bounded_regex import is_found
from mulligan.core.model.text.credential_patterns import HIDDEN, hide_credentials
from mulligan.core.model.text.durations import parse_duration, parse_time, parse_wait
from mulligan.formats.noetl.runtime import templates
from mulligan.language import expressions
from mulligan.language.cel import cel, cel_process
from mulligan.language.cel.cel import CelFailed, CelRefused
from mulligan.language.checks.regular_expressions import SEARCHED
from mulligan.language.input_values import check_inputs, refuse_references
from mulligan.language.loading import load_text
from mulligan.language.shell.shell import ShellText, rewrite
from mulligan.language.text import quantities, scalars
from mulligan.language.text.nodes import Refusal, Scalar, Source
from mulligan.service.authoring.handler_trial import parse_failure
from mulligan.service.decisions.decisions import make_decision, read_decisions
from mulligan.worker.databases.parameters import bind_parameters
from mulligan.worker.databases.statements import Dialect, statements

from .sentences import refusing, require

MESSAGE_CHARS_MAX = 2000
# What names hold in an expression: a little of everything, and nothing that any program should meet.
NAMES: dict[str, Any] = {
    "inputs": {
        "x": "$(touch x)",
        "n": 3,
        "list": [1, "a", None, {"k": [1.5]}],
        "": True,
        "ä-b": "\u202e",
        "big": 2**62,
    },
    "steps": {"a": {"output": {"rows": [{"n": 1}, {"n": -1}], "ok": False}, "status": "completed", "failure": None}},
    "item": {"name": "a b", "size": 0.1},
    "index": 0,
    "run": {"id": 1},
    "env": {"HOME": "/"},
    "error": {"message": "x" * 3000, "exit_code": 137},
}
# The same, with as much as a step may give: what takes long with it is ended, in words.
MUCH: dict[str, Any] = {
    **NAMES,
    "inputs": {**NAMES["inputs"], "many": [{"k": n} for n in range(3_000)], "long": "ab, " * 50_000},
}
BOUND = frozenset({"item", "index"})
# Where the engines are known to differ (see `mulligan.language.cel.cel`).
_KNOWN_TO_DIFFER = re.compile(r"matches|9223372036854775808|[eE]\+?\d{3}|\{")
ASKED = load_text(
    "inputs: {s: string, i: integer, n: number, b: boolean, a: array, o: object, e: {type: string, enum: [x, y]}}\n"
    "steps: [{step: a, shell: make}]"
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def expression(data: bytes) -> None:
    """Text with holes: checked and evaluated, by whichever engine, with the same value."""
    text = data.decode("utf-8", "replace")
    with refusing():
        expressions.render(expressions.template(text), MUCH)
    with refusing():
        checked = expressions.check(text)
        expressions.condition(checked, MUCH)
    found = [value for value in map(_evaluated(text), ("google", "rust")) if value is not None]
    if len(found) == 2 and not _KNOWN_TO_DIFFER.search(text):
        require(found[0] == found[1], f"two engines, two values: {found!r:.300}")


def _evaluated(source: str) -> Callable[[str], bytes | None]:
    def by(engine: str) -> bytes | None:
        try:
            expressions.check(source)
            cel.checked_json(NAMES)
            value = cel_process.evaluate(cel.engine(engine).compile(source.strip()), NAMES)
            return msgspec.json.encode(value, order="sorted")
        except (CelFailed, CelRefused, expressions.ExpressionRefused):
            return None

    return by


def shell_text(data: bytes) -> None:
    """A script: refused, or one in which every value is a variable. Without a hole it stays as it is."""
    text = data.decode("utf-8", "replace")
    with refusing():
        found = rewrite(text, BOUND)
        require("${" in text or found == ShellText(text, {}, ()), "a script without holes was changed")
        for source in found.bindings.values():
            with refusing():
                expressions.check(source)


def query(data: bytes) -> None:
    """A query in every dialect: its statements are parts of it, in order, and each value has one place."""
    text = data.decode("utf-8", "replace")
    for dialect in Dialect:
        with refusing(StepError):
            found = statements(text, dialect)
            for one in found:
                require(0 <= one.start <= one.end <= len(text), "a statement that is not in the query")
                spots = [(spot.start, spot.end) for spot in one.placeholders]
                require(spots == sorted(spots), "places of values out of order")
                sent = one.render([text[start:end] for start, end in spots])
                require(sent.text == text[one.start : one.end], "a statement that was changed")
            bind_parameters(found, {spot.name: 1 for one in found for spot in one.placeholders}, dialect)


def quantity(data: bytes) -> None:
    """Durations, sizes, factors, moments and plain scalars: a value, or a ValueError."""
    text = data.decode("utf-8", "replace")
    for read in (parse_duration, parse_wait, quantities.size, quantities.factor, parse_time, scalars.resolve):
        with refusing(ValueError):
            read(text)
    quantities.suggest_duration(text)


def template(data: bytes) -> None:
    """NoETL's templates, filled in and evaluated. The result is plain JSON, whatever the input is."""
    text = data.decode("utf-8", "replace")
    for fill in (templates.render_value, templates.render_text, templates.holds):
        with refusing(StepError):
            msgspec.json.encode(fill(text, NAMES))


def pattern(data: bytes) -> None:
    """A rule's regular expression: refused, or found where Python finds it, and soon also in the worst message."""
    text = data.decode("utf-8", "replace")
    source = Source(text, "w.yaml")
    try:
        SEARCHED.read(Scalar(text, text, '"', 0, 0, len(text)), "'pattern'", source)
    except Refusal:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for message in _messages(text):
            is_found(text, message)
        for message in (text[:12], _letters(text)[:12], "aab 1"):
            expected = re.search(text, message) is not None
            require(is_found(text, message) == expected, f"Python finds it in {message!r}: {expected}")


def _messages(text: str) -> list[str]:
    """As long as messages are, and nearly what the pattern looks for, again and again."""
    letters = _letters(text)
    # The second to the fourth are for those that look at the edges of words, and begin anew at each character.
    units = ["a", "x", "x ", "\n", "ab", "a ", letters[:20], letters[:1], letters[-1:], text[:20] or "a"]
    return [(unit * MESSAGE_CHARS_MAX)[: MESSAGE_CHARS_MAX - 1] + "\0" for unit in dict.fromkeys(units)]


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text) or "a"


def command_line(data: bytes) -> None:
    """Words of a command line, one a line: a call, or a refusal. Inputs, errors and decisions as they are given."""
    words = _text(data).replace("\0", "").split("\n")
    with refusing():
        call_for(words)
    with refusing():
        given = given_inputs(words)
        refuse_references(given)
        check_inputs(ASKED, given)
    for name in ASKED.inputs:
        with refusing():
            check_inputs(ASKED, {"s": "", "i": 1, "n": 1, "b": True, "a": [], "o": {}, "e": "x", name: words[0]})
    with refusing():
        parse_failure(_text(data))
    with refusing():
        read_decisions(data)
    with refusing():
        make_decision(1, "a", "retry", "", memory=words[0], timeout=words[-1])


def credentials(data: bytes) -> None:
    """The output of a failed step: without what looks like a credential, and ordinary text is not made longer."""
    text = _text(data)
    shown = hide_credentials(text)
    require("password=hunter2" not in shown, "a password is shown")
    require(shown == text or HIDDEN in shown, "a text is changed, and nothing is hidden")
