"""NoETL's templates: Jinja2 in a sandbox. What is undefined is an error that names it; nothing is rendered twice."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from jinja2 import Template, TemplateError, UndefinedError, nodes
from jinja2.environment import TemplateExpression
from jinja2.runtime import Undefined
from jinja2.sandbox import SecurityError

from mulligan import StepError
from mulligan.worker.actions.noetl.answers import plain
from mulligan.worker.actions.noetl.sandbox import CONDITIONS, TEXT_CHARS_MAX, VALUES, Absent, Nothing, UnknownName

Names: TypeAlias = Mapping[str, Any]

_SHOWN_CHARS_MAX = 120
_ONE_EXPRESSION = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[(?:\d+|'[^']*'|\"[^\"]*\")\])*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(\.\d+)?")
_FALSE = frozenset({"false", "0", "no", "none", "null", "off", ""})
# What a condition may ask for before there is any.
_OPTIONAL = (
    *("error", "event", "iter", "loop", "outcome", "output", "response", "result", "results", "this", "vars"),
    "_prev",
)


class Misspelled(StepError):
    """A template that is wrong whatever the values are: no rule may take it for one that does not hold."""


# -- filling in


def filled(value: Any, names: Names) -> Any:
    """Any value with all templates in it filled in."""
    if isinstance(value, dict):
        return {_key(key, names): filled(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, names) for inner in value]
    return _value(value, names) if isinstance(value, str) else value


def filled_text(text: str, names: Names) -> str:
    """A text with its templates filled in, which stays a text: a command, an address."""
    if not is_template(text):
        return text
    template = _template(text)
    with_names = dict(names)
    return carefully(text, lambda: joined(template.generate(with_names)))


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text


def holds(condition: Any, names: Names) -> bool:
    """Whether a condition holds. A part of it that is not there yet makes it false; StepError where it is none."""
    if not isinstance(condition, str):
        return bool(condition)
    source = condition.strip()
    expression = _only_expression(source) or (source if not is_template(source) else "")
    known = {**{name: Absent(obj=None, name=name) for name in _OPTIONAL}, **names}
    if expression:
        found = carefully(condition, lambda: _is_true(_condition(condition, expression)(known)))
    else:
        found = carefully(condition, lambda: _is_true(joined(_conditional(source).generate(known))))
    return bool(found)


def _is_true(value: Any) -> bool:
    return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)


def _key(key: Any, names: Names) -> Any:
    return filled_text(key, names) if isinstance(key, str) else key


def _value(text: str, names: Names) -> Any:
    """A text that is one expression keeps its type; what became text and looks like a value is that value."""
    if not is_template(text):
        return text
    expression = _only_expression(text)
    if not expression:
        return _told(filled_text(text, names), text)
    compiled = _expression(text, expression)
    value = carefully(text, lambda: _defined(compiled(dict(names))))
    return value if _PATH.fullmatch(expression) else _told(value, text)


def _defined(value: Any) -> Any:
    if isinstance(value, Nothing):
        return None
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return plain(value)


def _told(value: Any, template: str) -> Any:
    """What a text tells: JSON, a number, a truth. One that was made by `tojson` is meant to be text."""
    if not isinstance(value, str) or "tojson" in template or "to_json" in template:
        return value
    text = value.strip()
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    if number := _NUMBER.fullmatch(text):
        return float(text) if number[1] else int(text)
    return parsed(value)


def parsed(text: str) -> Any:
    """A text that looks like an object or a list, as that; else the text."""
    stripped = text.strip()
    if (stripped[:1] + stripped[-1:]) not in ("{}", "[]"):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return plain(read(stripped))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


# -- Jinja2 at work


def carefully(text: str, work: Callable[[], Any]) -> Any:
    """What the work gives; whatever it raises is a failure that shows the template, and nothing that was in it."""
    try:
        return work()
    except StepError:
        raise
    except UnknownName as error:
        raise unfilled(text, str(error), Misspelled) from None
    except UndefinedError as error:
        raise unfilled(text, str(error)) from None
    except SecurityError as error:
        raise unfilled(text, f"the sandbox refuses it: {_lowered(error)}") from None
    except Exception as error:  # a template may call anything that its values have
        raise unfilled(text, f"{type(error).__name__}: {error}"[:_SHOWN_CHARS_MAX]) from None


def unfilled(text: str, reason: str, kind: type[StepError] = StepError) -> StepError:
    """The failure that a template is which cannot be filled in."""
    return kind("EXPRESSION_FAILED", f"'{shown(text)}': {reason}", retryable=False)


def shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS_MAX else f"{line[:_SHOWN_CHARS_MAX]}…"


def _lowered(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]


def joined(pieces: Iterator[str]) -> str:
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > TEXT_CHARS_MAX:
            raise SecurityError(f"it gives more than {TEXT_CHARS_MAX} characters")
        found.append(piece)
    return "".join(found)


@lru_cache(maxsize=1024)
def _only_expression(text: str) -> str:
    """The expression that the whole text is; "" where there is more to it, or less."""
    found = _ONE_EXPRESSION.fullmatch(text.strip())
    if found is None:
        return ""
    body = compiled(text, lambda: VALUES.parse(text.strip())).body
    is_one = len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1
    return found[1].strip() if is_one and not isinstance(body[0].nodes[0], nodes.TemplateData) else ""


@lru_cache(maxsize=1024)
def _template(text: str) -> Template:
    return compiled(text, lambda: VALUES.from_string(text))


@lru_cache(maxsize=1024)
def _conditional(text: str) -> Template:
    return compiled(text, lambda: CONDITIONS.from_string(text))


@lru_cache(maxsize=1024)
def _expression(text: str, source: str) -> TemplateExpression:
    return compiled(text, lambda: VALUES.compile_expression(source, undefined_to_none=False))


@lru_cache(maxsize=1024)
def _condition(text: str, source: str) -> TemplateExpression:
    return compiled(text, lambda: CONDITIONS.compile_expression(source, undefined_to_none=False))


def compiled(text: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except TemplateError as error:
        raise unfilled(text, f"this is no template: {_lowered(error)}", Misspelled) from None
    except (RecursionError, MemoryError, SyntaxError):
        # Jinja2 makes a program of it, and Python has its own bounds.
        raise unfilled(text, "this is no template: it is nested too deep", Misspelled) from None
    except (ValueError, OverflowError):
        raise unfilled(text, "this is no template: a number in it is too long", Misspelled) from None
