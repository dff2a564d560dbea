"""`${…}`: finding holes in text, checking what is in them, and giving them their values.

An expression is CEL (see `cel`). It is checked at load, with the names it reads; evaluated, it is handed those names
and nothing else, so that its cost does not grow with the run. What cannot be evaluated is ExpressionFailed, never a
value that happens to be false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from mulligan.core.model.artifacts import INLINE_BYTES_MAX, Artifact, Format, holds_reference, is_artifact, reference
from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Expression, Template
from mulligan.errors import ExpressionFailed, MulliganError, StoreRefused
from mulligan.language import cel, cel_cost, cel_process
from mulligan.language.artifact_reader import Contents, plain_content
from mulligan.language.cel import CelFailed, CelRefused
from mulligan.language.cel_analysis import Analysis, Path, UnknownFunction, analyse, is_surely_valid, reads
from mulligan.language.cel_tokens import STRING, TOO_DEEP, BadToken, Token, closing, closing_brace, tokens

# `${any_path(…)}` in a path: its value may lead anywhere.
ANY_PATH = "any_path"
SOURCE_CHARS_MAX = 8192
PROGRAMS_MAX = 16384
_HOLE = lazy_regex(r"\$?\$\{")
_OFFENDER = lazy_regex(r"(?:extraneous|mismatched) input '(.*?)' expecting|no viable alternative at input '(.*?)'")
# What other languages write, and what it is in CEL: words and signs, and functions.
_MEANT = {"and": "&&", "or": "||", "not": "!", "=": "==", "is": "==", "&": "&&", "|": "||"} | {
    **dict.fromkeys(("None", "none", "nil", "undefined", "NULL", "Null"), "null"),
    **dict.fromkeys(("True", "TRUE", "yes"), "true"),
    **dict.fromkeys(("False", "FALSE", "no"), "false"),
}
_MEANT_FUNCTIONS = {
    **dict.fromkeys(("len", "length", "count"), "size"),
    **dict.fromkeys(("str", "toString", "text"), "string"),
    **{"float": "double", "defined": "has", "any": "exists", "lower": "lowerAscii", "upper": "upperAscii"},
    **{"strip": "trim", "startswith": "startsWith", "endswith": "endsWith", "find": "indexOf"},
}
# `${{ inputs.x }}`, as other systems write it.
_DOUBLED = lazy_regex(r"\{\s*(.+?)\s*\}", re.DOTALL)
_IS_NOT = lazy_regex(r"is\s+not\b")
# A step's name with a hyphen after a dot; strings are passed over.
_HYPHENATED_STEP = lazy_regex(rf"{STRING}|(?<![\w.])steps\.(?P<step>\w+(?:-\w+)+)")


class ExpressionRefused(MulliganError):
    """Text that is refused at load. `offset` and `length` say where in the text, for the caret."""

    code = "language.expression"
    http_status = 422
    exit_code = 2

    def __init__(self, message: str, offset: int, length: int, hint: str = "") -> None:
        super().__init__(message, hint=hint, offset=offset, length=length)
        self.offset = offset
        self.length = max(length, 1)


class Hole(NamedTuple):
    """A `${…}`: the source within, and where the whole of it stands in the text."""

    source: str
    offset: int
    length: int

    @property
    def source_offset(self) -> int:
        return self.offset + 2


def find_holes(text: str) -> tuple[str | Hole, ...]:
    """`text` as literals and holes, in order. `$${` is a literal `${`."""
    parts: list[str | Hole] = []
    literal, position = "", 0
    for match in _HOLE.finditer(text):
        if match.start() < position:
            continue
        literal += text[position : match.start()]
        if match.group() == "$${":
            literal, position = literal + "${", match.end()
            continue
        hole = _hole(text, match.start())
        parts += [literal, hole] if literal else [hole]
        literal, position = "", hole.offset + hole.length
    literal += text[position:]
    return (*parts, literal) if literal else tuple(parts)


def _hole(text: str, offset: int) -> Hole:
    end = closing_brace(text, offset + 2)
    if end < 0:
        raise ExpressionRefused("'${' is not closed by '}'", offset, 2, hint="for the characters '${' write '$${'")
    return Hole(text[offset + 2 : end], offset, end + 1 - offset)


def argument_of(function: str, found: Hole) -> Hole | None:
    """What is between the brackets of a hole that is a call of `function` as a whole; None where it is not."""
    try:
        words = tokens(found.source)
        is_call = [word.text for word in words[:2]] == [function, "("] and closing(words)[1] == len(words) - 1
    except BadToken:
        return None
    if not is_call:
        return None
    start, end = words[1].offset + 1, words[-1].offset
    return Hole(found.source[start:end], found.source_offset + start - 2, end - start + 3)


def check(source: str, *, offset: int = 0) -> Expression:
    """A checked expression with the names it reads. `offset` is where `source` starts in the text around it."""
    body = source.strip()
    start = offset + len(source) - len(source.lstrip())
    if "-" in body and "steps." in body:
        _refuse_hyphenated_step(body, start)
    try:
        expression = _program(body).expression
    except BadToken as bad:
        raise _refused(body, bad, start) from bad
    if "secrets" in body:
        _refuse_mixed_secrets(expression, start)
    return expression


def paths(expression: Expression) -> tuple[Path, ...]:
    """Every name that a checked expression reads, with the fields that follow it as written."""
    return _program(expression.source).paths


def _refuse_hyphenated_step(source: str, start: int) -> None:
    """`steps.a-b` is `steps.a` minus `b` to CEL, and a step is no number: it is never what was meant."""
    for match in _HYPHENATED_STEP.finditer(source):
        if step := match["step"]:
            message = f"'steps.{step}' takes '{step.partition('-')[2]}' away from 'steps.{step.partition('-')[0]}'"
            raise ExpressionRefused(message, start + match.start(), len(match[0]), hint=f'write steps["{step}"]')


def hint_for_name(name: str, source: str) -> str:
    """What was meant by a name that `source` reads and nobody knows, as far as CEL itself can tell."""
    if name in _MEANT:
        return f"did you mean '{_MEANT[name]}'?"
    hyphenated = re.search(rf"(?<![\w.])([A-Za-z_][\w.]*)\.((?:\w+-)+{re.escape(name)})(?!\w)", source)
    return f"did you mean '{hyphenated[1]}[\"{hyphenated[2]}\"]'?" if hyphenated else ""


def condition_source(text: str) -> tuple[str, int]:
    """The source of a bare condition and where it starts: `${…}` around the whole of it is allowed."""
    start = len(text) - len(text.lstrip())
    if text[start:].startswith("${") and closing_brace(text, start + 2) == len(text.rstrip()) - 1:
        return text.rstrip()[start + 2 : -1], start + 2
    return text, 0


def template(text: str) -> Template:
    """Checked text with holes. One hole alone keeps its value's type."""
    parts = find_holes(text)
    return Template(parts=tuple(_part(part) for part in parts))


def _part(part: str | Hole) -> str | Expression:
    return part if isinstance(part, str) else check(part.source, offset=part.source_offset)


def evaluate(expression: Expression, names: Mapping[str, Any], contents: Contents | None = None) -> Any:
    """The value of `expression`. Only what it reads is taken from `names`.

    A plain path that ends at a reference to an artifact gives the reference.
    """
    try:
        return _program(expression.source).evaluate(names, contents)
    except CelFailed as failed:
        raise _failed(expression, _unset_variable(expression, names) or str(failed)) from failed
    except BadToken as bad:
        raise _failed(expression, bad.reason) from bad


def _unset_variable(expression: Expression, names: Mapping[str, Any]) -> str:
    """The words for an expression that failed and reads an environment variable that is not set, else nothing."""
    if "env" not in expression.reads or "env" not in names:
        return ""
    read = (path[1] for path in paths(expression) if path[0] == "env" and len(path) > 1)
    unset = next((name for name in read if name not in names["env"]), None)
    return f"environment variable '{unset}' is not set" if unset else ""


def evaluate_whole(expression: Expression, names: Mapping[str, Any], contents: Contents | None) -> Any:
    """The value of `expression`; that of an artifact, where it is a reference to one. References in it stay."""
    value = evaluate(expression, names, contents)
    if contents is None or not is_artifact(value):
        return value
    try:
        return plain_content(contents.of(value))
    except CelFailed as failed:
        raise _failed(expression, str(failed)) from failed


def render(template: Template, names: Mapping[str, Any], contents: Contents | None = None) -> Any:
    """The value of a template: of one expression its value with its type, else text."""
    if len(template.parts) == 1 and isinstance(template.parts[0], Expression):
        return evaluate(template.parts[0], names, contents)
    return "".join(part if isinstance(part, str) else _text(part, names, contents) for part in template.parts)


def _text(expression: Expression, names: Mapping[str, Any], contents: Contents | None) -> str:
    value = evaluate(expression, names, contents)
    if contents is None:
        return as_text(value)
    try:
        return as_text(contents.whole(value))
    except CelFailed as failed:
        raise _failed(expression, str(failed)) from failed


def condition(expression: Expression, names: Mapping[str, Any], contents: Contents | None = None) -> bool:
    """Whether `expression` holds. What is neither true nor false is ExpressionFailed: truthiness is never asked."""
    value = evaluate_whole(expression, names, contents)
    if not isinstance(value, bool):
        raise _failed(expression, f"the result is {kind_of(value)}, not true or false")
    return value


def as_text(value: Any) -> str:
    """`value` as it goes into text: a string as it is, null as nothing, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def kind_of(value: Any) -> str:
    """What a JSON value is, in words: `a string`, `a list`."""
    kinds = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "a map"}
    return kinds.get(type(value), "a number")


class Cel:
    """The evaluator that the core is handed. `env` are the environment variables that expressions may read.

    `fetch` gives what is in an artifact: for what is evaluated. Rendered, a plain path to one stays a reference.
    `keep` makes one of what is large; without it everything stays where it is.
    """

    def __init__(
        self,
        env: Mapping[str, str] = MappingProxyType({}),
        fetch: Callable[[Artifact], bytes] | None = None,
        keep: Callable[[str, bytes, Format], Artifact] | None = None,
    ) -> None:
        self._env = dict(env)
        self._contents = None if fetch is None else Contents(fetch)
        self._keep = keep

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        return evaluate_whole(expression, {**names, "env": self._env}, self._contents)

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        return render(template, {**names, "env": self._env}, self._contents)

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        return condition(expression, {**names, "env": self._env}, self._contents)

    def keep(self, name: str, value: Any) -> Any:
        if self._keep is None or not value:
            return value
        data = msgspec.json.encode(value)
        # What is in an artifact is not looked into: references stay where they are found.
        if len(data) <= INLINE_BYTES_MAX or holds_reference(value):
            return value
        try:
            return reference(self._keep(name, data, "json"))
        except StoreRefused:
            return value  # the log may have room for it, and else says itself what is wrong


def _failed(expression: Expression, reason: str) -> ExpressionFailed:
    return ExpressionFailed(f"'{expression.source}': {reason}", expression=expression.source, reason=reason)


class _PathProgram:
    """A plain path, walked without an engine: any value comes back itself, however large, its keys in their order."""

    def __init__(self, source: str, path: tuple[str | int, ...], paths: tuple[Path, ...]) -> None:
        self.expression = Expression(source, reads(paths))
        self.paths = paths
        self._path = path

    def evaluate(self, names: Mapping[str, Any], contents: Contents | None) -> Any:
        value: Any = names
        for depth, field in enumerate(self._path):
            # What is in an artifact has no references.
            if contents is not None and depth and is_artifact(value):
                inner = _walk(contents.of(value), self._path[depth:], depth)
                return plain_content(inner)
            value = _member(value, field, depth)
        return value


def _walk(value: Any, path: tuple[str | int, ...], depth: int) -> Any:
    for at, field in enumerate(path, depth):
        value = _member(value, field, at)
    return value


def _member(value: Any, field: str | int, depth: int) -> Any:
    # Nearly all are dicts, and asking for what is like one takes longer than all the rest.
    if type(value) is dict or isinstance(value, Mapping):
        if field in value:
            return value[field]
        raise CelFailed(f"no such key '{field}'" if depth else f"'{field}' is not known here")
    if isinstance(field, int) and isinstance(value, list):
        if field < len(value):
            return value[field]
        raise CelFailed(f"index {field} is out of range")
    if isinstance(field, int):
        raise CelFailed(f"index {field} is read from {kind_of(value)}")
    raise CelFailed(f"the field '{field}' is read from {kind_of(value)}")


class _EngineProgram:
    """An expression for the engine, which gets the paths that it reads and nothing beside them.

    One that may take long with what it reads is evaluated in a process of its own, within limits.
    """

    def __init__(self, source: str, analysis: Analysis) -> None:
        self.expression = Expression(source, reads(analysis.paths))
        # The shortest first: what is taken whole is not entered again.
        self.paths = tuple(sorted(analysis.paths, key=len))
        self._reads_around = analysis.reads_around
        # With so many bytes of values, whatever they are, it does not take long. Less is not asked about again.
        self._bytes_harmless = -1

    @cached_property
    def compiled(self) -> cel.Program:
        return cel.engine().compile(self.expression.source)

    @cached_property
    def _cost(self) -> cel_cost.Cost:
        return cel_cost.cost(tokens(self.expression.source), reads_around=self._reads_around)

    def evaluate(self, names: Mapping[str, Any], contents: Contents | None) -> Any:
        read = _pruned(names, self.paths, contents)
        if self._may_take_long(read, cel.checked_json(read)):
            value = cel_process.evaluate(self.compiled, read)
        else:
            value = cel.plain(self.compiled.evaluate(read))
        return value if contents is None else plain_content(value)

    def _may_take_long(self, read: dict[str, Any], encoded: bytes) -> bool:
        if len(encoded) <= self._bytes_harmless:
            return False
        # No value takes less than two bytes.
        values = len(encoded) // 2 + 1
        if not self._is_long(cel_cost.Size(len(encoded), values, values)):
            self._bytes_harmless = len(encoded)
            return False
        rough = cel_cost.rough_size(encoded)
        return self._is_long(rough) and self._is_long(cel_cost.close_size(read, rough))

    def _is_long(self, size: cel_cost.Size) -> bool:
        seconds = self._cost.seconds_max(size, copies_deeply=cel.engine().copies_deeply)
        return seconds > cel_cost.DIRECT_SECONDS_MAX


def _pruned(names: Mapping[str, Any], paths: tuple[Path, ...], contents: Contents | None) -> dict[str, Any]:
    """The part of `names` that lies on `paths`, of which the shortest come first; artifacts as what is in them."""
    kept: dict[str, Any] = {}
    taken: set[Path] = set()
    for path in paths:
        if not any(path[:length] in taken for length in range(1, len(path))):
            taken.add(path[: _keep(names, kept, path, contents)])
    return kept


def _keep(source: Mapping[str, Any], kept: dict[str, Any], path: Path, contents: Contents | None) -> int:
    """Keep what the path leads to, and say how many of its fields were enough: what is behind them is kept whole."""
    for depth, field in enumerate(path, 1):
        if field not in source:
            return depth
        inner = source[field]
        if depth == len(path) or not isinstance(inner, Mapping) or (contents is not None and is_artifact(inner)):
            kept[field] = inner if contents is None else contents.whole(inner)
            return depth
        source, kept = inner, kept.setdefault(field, {})
    return len(path)


@lru_cache(maxsize=PROGRAMS_MAX)
def _program(source: str) -> _PathProgram | _EngineProgram:
    """The program of `source`, compiled once; BadToken where it is no expression that we take."""
    if len(source) > SOURCE_CHARS_MAX:
        raise BadToken(f"it is longer than {SOURCE_CHARS_MAX} characters", 0, 1)
    found = tokens(source)
    if not found:
        raise BadToken("it is empty", 0, 1)
    analysis = analyse(found)
    if analysis.plain is not None:
        return _PathProgram(source, analysis.plain, analysis.paths)
    program = _EngineProgram(source, analysis)
    if not is_surely_valid(found):
        _require_compiled(program, found)
    return program


def _require_compiled(program: _EngineProgram, found: list[Token]) -> None:
    try:
        _ = program.compiled
    except CelRefused as refused:
        raise _bad_token(program.expression.source, found, refused) from refused


def _bad_token(source: str, found: list[Token], refused: CelRefused) -> BadToken:
    """An engine's syntax error in plain words, at the token it is about."""
    lines = source.split("\n")[: refused.line]
    offset = sum(len(line) + 1 for line in lines[:-1]) + refused.column - 1
    at = next((token for token in found if token.offset >= offset), None)
    match = _OFFENDER.search(refused.reason)
    if refused.reason == "recursion":
        return BadToken(TOO_DEEP, 0, len(source))
    if at is None:
        return BadToken("it ends too early", len(source), 1)
    if match:
        at = _offender(found, at)
        return BadToken(f"'{at.text}' is not expected here", at.offset, len(at.text))
    return BadToken(_own_words(refused.reason), offset, len(at.text) if at.offset == offset else 1)


def _offender(found: list[Token], at: Token) -> Token:
    """The token to point at: an engine takes the `not` of `not x` for a name, and stumbles over what follows."""
    before = found[found.index(at) - 1]
    return before if before.text == "not" and before.offset < at.offset else at


def _own_words(reason: str) -> str:
    if "has()" in reason:
        return "has() takes a field, such as has(inputs.x)"
    if reason.startswith("reserved identifier: "):
        return f"'{reason.partition(': ')[2]}' is a reserved word"
    if "string literal" in reason:
        return "the string has an escape that means nothing"
    if "simple" in reason:
        return "the first argument here names a variable"
    return reason[:1].lower() + reason[1:]


def _refused(source: str, bad: BadToken, start: int) -> ExpressionRefused:
    shown = source if len(source) <= 60 else source[:57] + "…"
    message = f"'{shown}' is not an expression: {bad.reason}"
    return ExpressionRefused(message, start + bad.offset, bad.length, hint=_hint(source, bad))


def _is_expression(source: str) -> bool:
    try:
        _program(source)
    except BadToken:
        return False
    return True


def _hint(source: str, bad: BadToken) -> str:
    if (doubled := _DOUBLED.fullmatch(source)) and _is_expression(doubled[1]):
        return f"write ${{{doubled[1]}}}"
    word = source[bad.offset : bad.offset + bad.length]
    meant = "!=" if _IS_NOT.match(source, bad.offset) else _MEANT.get(word)
    if isinstance(bad, UnknownFunction) and bad.name == ANY_PATH:
        return f"it stands in paths ('cwd', 'logs', 'file' of a map), around the whole: ${{{ANY_PATH}(inputs.x)}}"
    if isinstance(bad, UnknownFunction) and meant is None:
        translated = _MEANT_FUNCTIONS.get(word)
        close = [translated] if translated in bad.known else get_close_matches(word, sorted(bad.known), n=1)
        return f"did you mean '{close[0]}'?" if close else f"the functions here are {', '.join(sorted(bad.known))}"
    return f"did you mean '{meant}'?" if meant else ""


def _refuse_mixed_secrets(expression: Expression, start: int) -> None:
    secrets = [name for name in expression.reads if name.startswith("secrets.")]
    others = [name for name in expression.reads if not name.startswith("secrets.")]
    length = len(expression.source)
    if "secrets.*" in secrets:
        message = f"'{expression.source}' must name the secret it reads"
        raise ExpressionRefused(message, start, length, hint="write secrets.NAME")
    if secrets and others:
        message = f"'{expression.source}' reads '{secrets[0]}' and '{others[0]}': a secret may be read only by itself"
        hint = "the worker alone knows secrets: use two '${…}', one for each"
        raise ExpressionRefused(message, start, length, hint=hint)
