"""Render NoETL's templates: Jinja2 in a sandbox. An undefined name is an error; nothing is rendered twice."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from jinja2 import Environment, TemplateError, UndefinedError, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined

from mulligan import StepError
from mulligan.formats.noetl.runtime.answers import to_json
from mulligan.formats.noetl.runtime.render_limits import LimitReached, run_limited
from mulligan.formats.noetl.runtime.sandbox import CONDITIONS, TEXT_CHARS_MAX, VALUES, Absent, Nothing, UnknownName

Names: TypeAlias = Mapping[str, Any]

_SHOWN_CHARS_MAX = 120
_ONE_EXPRESSION = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[(?:\d+|'[^']*'|\"[^\"]*\")\])*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(\.\d+)?")
_FALSE = frozenset({"false", "0", "no", "none", "null", "off", ""})
# Names that a condition may read before they exist.
_OPTIONAL = (
    *("error", "event", "iter", "loop", "outcome", "output", "response", "result", "results", "this", "vars"),
    "_prev",
)


class InvalidTemplate(StepError):
    """A template that is wrong for all values: a rule must not treat it as a condition that does not hold."""


# -- rendering


def render_value(value: Any, names: Names) -> Any:
    """Render all templates in a value."""
    if isinstance(value, dict):
        return {_key(key, names): render_value(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [render_value(inner, names) for inner in value]
    return _value(value, names) if isinstance(value, str) else value


def render_text(text: str, names: Names) -> str:
    """Render a text that stays a text, such as a command or an address."""
    if not is_template(text):
        return text
    template, with_names = _compiled(text), dict(names)
    return str(evaluate(text, lambda: join_bounded(template.generate(with_names))))


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text


def holds(condition: Any, names: Names) -> bool:
    """Whether a condition holds. A part that does not exist yet is false; StepError where the condition is invalid."""
    if not isinstance(condition, str):
        return bool(condition)
    source = condition.strip()
    expression = _only_expression(source) or (source if not is_template(source) else "")
    known = {**{name: Absent(obj=None, name=name) for name in _OPTIONAL}, **names}
    if expression:
        found = evaluate(condition, lambda: _is_true(_compiled(condition, expression, CONDITIONS)(known)))
    else:
        found = evaluate(condition, lambda: _is_true(join_bounded(_compiled(source, "", CONDITIONS).generate(known))))
    return bool(found)


def _is_true(value: Any) -> bool:
    return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)


def _key(key: Any, names: Names) -> Any:
    return render_text(key, names) if isinstance(key, str) else key


def _value(text: str, names: Names) -> Any:
    """Render a text: one expression keeps its type; other text that looks like a value becomes that value."""
    if not is_template(text):
        return text
    expression = _only_expression(text)
    if not expression:
        template, with_names = _compiled(text), dict(names)
        return evaluate(text, lambda: _typed(join_bounded(template.generate(with_names)), text))
    calculate = _compiled(text, expression)
    if _PATH.fullmatch(expression):
        return evaluate(text, lambda: _defined(calculate(dict(names))))
    return evaluate(text, lambda: _typed(_defined(calculate(dict(names))), text))


def _defined(value: Any) -> Any:
    if isinstance(value, Nothing):
        return None
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    return to_json(value)


def _typed(value: Any, template: str) -> Any:
    """The value that a text looks like: JSON, a number, a boolean. What `tojson` made stays text."""
    if not isinstance(value, str) or "tojson" in template or "to_json" in template:
        return value
    text = value.strip()
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    if number := _NUMBER.fullmatch(text):
        return float(text) if number[1] else int(text)
    return parse_literal(value)


def parse_literal(text: str) -> Any:
    """Parse a text that looks like an object or a list; otherwise return the text."""
    stripped = text.strip()
    if (stripped[:1] + stripped[-1:]) not in ("{}", "[]"):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return to_json(read(stripped))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


# -- calling Jinja2


def evaluate(text: str, work: Callable[[], Any]) -> Any:
    """Evaluate a template within its limits. Any exception becomes a failure that shows the template, but no values."""
    try:
        return work() if _is_plain(text) else run_limited(work)
    except StepError:
        raise
    except LimitReached as limit:
        raise limit_failure(text, limit) from None
    except UnknownName as error:
        raise render_failure(text, str(error), InvalidTemplate) from None
    except UndefinedError as error:
        raise render_failure(text, str(error)) from None
    except SecurityError as error:
        raise render_failure(text, f"the sandbox refused it: {_in_our_style(error)}") from None
    except Exception as error:  # a template may call any method of its values
        raise render_failure(text, f"{type(error).__name__}: {error}"[:_SHOWN_CHARS_MAX]) from None


def render_failure(text: str, reason: str, kind: type[StepError] = StepError) -> StepError:
    """The failure of a template that cannot be rendered."""
    return kind("EXPRESSION_FAILED", f"'{excerpt(text)}': {reason}", retryable=False)


def limit_failure(text: str, limit: LimitReached) -> StepError:
    """The failure of a template that needs too much memory or time: no retry helps, and no rule takes it for false."""
    return render_failure(text, f"{limit}: do this work in a 'python' tool", InvalidTemplate)


@lru_cache(maxsize=1024)
def _is_plain(text: str) -> bool:
    """Whether all that it does is to read values: then it needs no limits, which cost as much as it does."""
    if not is_template(text) or "{%" in text:
        return False
    return all(_PATH.fullmatch(expression.strip()) for expression in _ONE_EXPRESSION.findall(text))


def excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS_MAX else f"{line[:_SHOWN_CHARS_MAX]}…"


def _in_our_style(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]


def join_bounded(pieces: Iterator[str]) -> str:
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > TEXT_CHARS_MAX:
            raise SecurityError(f"it gives more than {TEXT_CHARS_MAX} characters")
        found.append(piece)
    return "".join(found)


@lru_cache(maxsize=1024)
def _only_expression(text: str) -> str:
    """The expression if the whole text is one; "" otherwise."""
    found = _ONE_EXPRESSION.fullmatch(text.strip())
    if found is None:
        return ""
    body = compile_template(text, lambda: VALUES.parse(text.strip())).body
    is_one = len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1
    return found[1].strip() if is_one and not isinstance(body[0].nodes[0], nodes.TemplateData) else ""


@lru_cache(maxsize=4096)
def _compiled(text: str, expression: str = "", sandbox: Environment = VALUES) -> Any:
    """The template of a text; of its only expression, if that is given, what calculates it."""
    if not expression:
        return compile_template(text, lambda: sandbox.from_string(text))
    return compile_template(text, lambda: sandbox.compile_expression(expression, undefined_to_none=False))


def compile_template(text: str, work: Callable[[], Any]) -> Any:
    """Compile a template within the limits: Jinja2 calls filters of constants when it compiles."""
    try:
        return run_limited(work)
    except LimitReached as limit:
        raise limit_failure(text, limit) from None
    except TemplateError as error:
        raise render_failure(text, f"this template is invalid: {_in_our_style(error)}", InvalidTemplate) from None
    except (RecursionError, MemoryError, SyntaxError):
        # Jinja2 compiles it to Python, which has limits.
        raise render_failure(text, "this template is invalid: it is nested too deep", InvalidTemplate) from None
    except (ValueError, OverflowError):
        raise render_failure(text, "this template is invalid: a number in it is too long", InvalidTemplate) from None
