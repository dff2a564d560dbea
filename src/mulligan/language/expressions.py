"""Placeholders (`${…}`): find them in text, check their expressions, evaluate them.

An expression is CEL (see `cel`). It is checked when the file is loaded, with the names it reads. It is evaluated with
those names and nothing else, so its cost does not grow with the run. If it cannot be evaluated it is an
ExpressionFailed, never a false value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.core.model.artifacts import (
    INLINE_BYTES_MAX,
    KEY,
    Artifact,
    Format,
    decode_content,
    describe_dropped,
    find_dropped,
    holds_reference,
    is_artifact,
    make_reference,
    parse_reference,
    replace_references,
)
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Expression, Template
from mulligan.errors import ArtifactDamaged, ArtifactGone, ExpressionFailed, MulliganError, OutputDropped, StoreRefused
from mulligan.language.cel import cel
from mulligan.language.cel.cel import CelFailed, CelRefused
from mulligan.language.cel.cel_analysis import (
    Analysis,
    Path,
    UnknownFunction,
    analyse,
    analyse_simple,
    is_surely_valid,
    reads,
)
from mulligan.language.cel.cel_tokens import (
    RESERVED,
    STRING,
    TOO_DEEP,
    TYPE_NAMES,
    BadToken,
    Token,
    closing,
    closing_brace,
    tokens,
)
from mulligan.language.text.suggestions import most_similar

# Few runs evaluate an expression that needs an engine.
if TYPE_CHECKING:
    from mulligan.language.cel import cel_cost

# `${any_path(…)}` in a path: its value may point anywhere.
ANY_PATH = "any_path"
SOURCE_CHARS_MAX = 8192
PROGRAMS_MAX = 16384
_NOT_NAMES = RESERVED | TYPE_NAMES
# Names with dots between them. Most expressions are such a path.
_DOTTED = lazy_regex(r"[A-Za-z_][A-Za-z0-9_]*+(?>(?:\.[A-Za-z_][A-Za-z0-9_]*+)*)")
_PLACEHOLDER = lazy_regex(r"\$?\$\{")
_OFFENDER = lazy_regex(r"(?:extraneous|mismatched) input '(.*?)' expecting|no viable alternative at input '(.*?)'")
# Words, signs and functions of other languages, with their CEL equivalents.
_CEL_EQUIVALENTS = {"and": "&&", "or": "||", "not": "!", "=": "==", "is": "==", "&": "&&", "|": "||"} | {
    **dict.fromkeys(("None", "none", "nil", "undefined", "NULL", "Null"), "null"),
    **dict.fromkeys(("True", "TRUE", "yes"), "true"),
    **dict.fromkeys(("False", "FALSE", "no"), "false"),
}
_CEL_FUNCTIONS = {
    **dict.fromkeys(("len", "length", "count"), "size"),
    **dict.fromkeys(("str", "toString", "text"), "string"),
    **{"float": "double", "defined": "has", "any": "exists", "lower": "lowerAscii", "upper": "upperAscii"},
    **{"strip": "trim", "startswith": "startsWith", "endswith": "endsWith", "find": "indexOf"},
}
# `${{ inputs.x }}`, as other systems write it.
_DOUBLED = lazy_regex(r"\{\s*(.+?)\s*\}", re.DOTALL)
_IS_NOT = lazy_regex(r"is\s+not\b")
# The name of a step with a hyphen after a dot; strings are skipped.
_HYPHENATED_STEP = lazy_regex(rf"{STRING}|(?<![\w.])steps\.(?P<step>\w+(?:-\w+)+)")


class ExpressionRefused(MulliganError):
    """Text that is refused when the file is loaded. `offset` and `length` are for the caret."""

    code = "language.expression"
    http_status = 422
    exit_code = 2

    def __init__(self, message: str, offset: int, length: int, hint: str = "") -> None:
        super().__init__(message, hint=hint, offset=offset, length=length)
        self.offset = offset
        self.length = max(length, 1)


class Placeholder(msgspec.Struct, frozen=True):
    """A `${…}`: its source, and the position of the whole in the text."""

    source: str
    offset: int
    length: int

    @property
    def source_offset(self) -> int:
        return self.offset + 2


def find_placeholders(text: str) -> tuple[str | Placeholder, ...]:
    """`text` split into literals and placeholders. `$${` is a literal `${`."""
    parts: list[str | Placeholder] = []
    literals: list[str] = []
    position = 0

    def end_literal() -> None:
        if literal := "".join(literals):
            parts.append(literal)
        literals.clear()

    for match in _PLACEHOLDER.finditer(text):
        if match.start() < position:
            continue
        literals.append(text[position : match.start()])
        if match.group() == "$${":
            literals.append("${")
            position = match.end()
            continue
        end_literal()
        placeholder = _placeholder_at(text, match.start())
        parts.append(placeholder)
        position = placeholder.offset + placeholder.length
    literals.append(text[position:])
    end_literal()
    return tuple(parts)


def _placeholder_at(text: str, offset: int) -> Placeholder:
    end = closing_brace(text, offset + 2)
    if end < 0:
        raise ExpressionRefused("'${' is not closed by '}'", offset, 2, hint="for the characters '${' write '$${'")
    return Placeholder(text[offset + 2 : end], offset, end + 1 - offset)


def argument_of(function: str, found: Placeholder) -> Placeholder | None:
    """The argument of a placeholder that is a single call of `function`, otherwise None."""
    try:
        words = tokens(found.source)
        is_call = [word.text for word in words[:2]] == [function, "("] and closing(words)[1] == len(words) - 1
    except BadToken:
        return None
    if not is_call:
        return None
    start, end = words[1].offset + 1, words[-1].offset
    return Placeholder(found.source[start:end], found.source_offset + start - 2, end - start + 3)


def check(source: str, *, offset: int = 0) -> Expression:
    """A checked expression with the names it reads. `offset` is where `source` starts in the surrounding text."""
    body = source.strip()
    start = offset + len(source) - len(source.lstrip())
    if "-" in body and "steps." in body:
        _refuse_hyphenated_step(body, start)
    try:
        expression = _program(body).expression
    except BadToken as bad:
        raise _make_refusal(body, bad, start) from bad
    if "secrets" in body:
        _refuse_mixed_secrets(expression, start)
    return expression


class Checked(msgspec.Struct, frozen=True):
    """A checked expression, and its `paths`."""

    expression: Expression
    paths: tuple[Path, ...]


def check_simple(source: str) -> Checked | None:
    """What `check` and `paths` say of a path, or of a few paths and literals between operators; None of anything else.

    A file may have thousands of them, and nothing but their paths is asked for while it is read.
    """
    if "-" in source or "secrets" in source or len(source) > SOURCE_CHARS_MAX:
        return None
    if _DOTTED.fullmatch(source):
        path = tuple(source.split("."))
        if not _NOT_NAMES.isdisjoint(path):
            return None
        return Checked(Expression(source, reads((path,))), (path,))
    simple = analyse_simple(source)
    if simple is None:
        return None
    # The shortest first.
    found = simple.paths if len(simple.paths) < 2 else tuple(sorted(simple.paths, key=len))
    return Checked(Expression(source, reads(simple.paths)), found)


def paths(expression: Expression) -> tuple[Path, ...]:
    """The paths that a checked expression reads: each name with the literal fields that follow it."""
    return _program(expression.source).paths


def _refuse_hyphenated_step(source: str, start: int) -> None:
    """CEL reads `steps.a-b` as `steps.a` minus `b`. A step is not a number, so this is never meant."""
    for match in _HYPHENATED_STEP.finditer(source):
        if step := match["step"]:
            first, _, rest = step.partition("-")
            message = f"'steps.{step}' subtracts '{rest}' from 'steps.{first}'"
            raise ExpressionRefused(message, start + match.start(), len(match[0]), hint=f'write steps["{step}"]')


def hint_for_name(name: str, source: str) -> str:
    """A suggestion for an unknown name in `source`, as far as CEL itself knows."""
    if name in _CEL_EQUIVALENTS:
        return f"did you mean '{_CEL_EQUIVALENTS[name]}'?"
    hyphenated = re.search(rf"(?<![\w.])([A-Za-z_][\w.]*)\.((?:\w+-)+{re.escape(name)})(?!\w)", source)
    return f"did you mean '{hyphenated[1]}[\"{hyphenated[2]}\"]'?" if hyphenated else ""


def condition_source(text: str) -> tuple[str, int]:
    """The source of a condition and its offset. The whole may be inside `${…}`."""
    start = len(text) - len(text.lstrip())
    if text[start:].startswith("${") and closing_brace(text, start + 2) == len(text.rstrip()) - 1:
        return text.rstrip()[start + 2 : -1], start + 2
    return text, 0


def template(text: str) -> Template:
    """Text with checked placeholders. A single placeholder keeps the type of its value."""
    parts = find_placeholders(text)
    return Template(tuple(p if isinstance(p, str) else check(p.source, offset=p.source_offset) for p in parts))


def evaluate(expression: Expression, names: Mapping[str, Any], artifacts: ArtifactReader | None = None) -> Any:
    """The value of `expression`. It gets only the names that it reads.

    A plain path to a reference to an artifact returns the reference. OutputDropped if there is an output in the value,
    or in what it is computed from, that was not kept.
    """
    try:
        return _refuse_dropped(_program(expression.source).evaluate(names, artifacts))
    except _ReadsDropped as dropped:
        raise _make_failure(expression, str(dropped), OutputDropped) from dropped
    except CelFailed as failed:
        raise _make_failure(expression, _unset_variable(expression, names) or str(failed)) from failed
    except BadToken as bad:
        raise _make_failure(expression, bad.reason) from bad


class _ReadsDropped(CelFailed):
    """An expression leads to an output that was not kept; the text says to which."""


def _refuse_dropped(value: Any) -> Any:
    """The value itself; _ReadsDropped if an output in it was not kept."""
    dropped = find_dropped(value)
    if dropped is not None:
        raise _ReadsDropped(describe_dropped(dropped))
    return value


def _unset_variable(expression: Expression, names: Mapping[str, Any]) -> str:
    """The reason for a failed expression that reads an unset environment variable, otherwise empty."""
    if "env" not in expression.reads or "env" not in names:
        return ""
    read = (path[1] for path in paths(expression) if path[0] == "env" and len(path) > 1)
    unset = next((name for name in read if name not in names["env"]), None)
    return f"environment variable '{unset}' is not set" if unset else ""


def evaluate_and_fetch(expression: Expression, names: Mapping[str, Any], artifacts: ArtifactReader | None) -> Any:
    """The value of `expression`. A reference to an artifact is replaced by its value; nested references stay."""
    value = evaluate(expression, names, artifacts)
    if artifacts is None or not is_artifact(value):
        return value
    try:
        return refuse_references_in(artifacts.read(value))
    except CelFailed as failed:
        raise _make_failure(expression, str(failed)) from failed


def render(template: Template, names: Mapping[str, Any], artifacts: ArtifactReader | None = None) -> Any:
    """The value of a template: text, or for a single expression its value with its type."""
    if len(template.parts) == 1 and isinstance(template.parts[0], Expression):
        return evaluate(template.parts[0], names, artifacts)
    return "".join(part if isinstance(part, str) else _text(part, names, artifacts) for part in template.parts)


def _text(expression: Expression, names: Mapping[str, Any], artifacts: ArtifactReader | None) -> str:
    value = evaluate(expression, names, artifacts)
    if artifacts is None:
        return as_text(value)
    try:
        return as_text(artifacts.fill_in(value))
    except CelFailed as failed:
        raise _make_failure(expression, str(failed)) from failed


def condition(expression: Expression, names: Mapping[str, Any], artifacts: ArtifactReader | None = None) -> bool:
    """Whether `expression` is true. ExpressionFailed if it is neither true nor false: there is no truthiness."""
    value = evaluate_and_fetch(expression, names, artifacts)
    if not isinstance(value, bool):
        raise _make_failure(expression, f"the result is {kind_of(value)}, not true or false")
    return value


def as_text(value: Any) -> str:
    """`value` as text: a string unchanged, null as an empty text, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def kind_of(value: Any) -> str:
    """The type of a JSON value with its article: `a string`, `a list`."""
    kinds = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "a map"}
    return kinds.get(type(value), "a number")


class Cel:
    """The evaluator for the core. `env` are the environment variables that expressions may read.

    `fetch` reads an artifact. A rendered plain path to an artifact stays a reference.
    `keep` stores a large value as an artifact; without it all values stay inline.
    """

    def __init__(
        self,
        env: Mapping[str, str] = MappingProxyType({}),
        fetch: Callable[[Artifact], bytes] | None = None,
        keep: Callable[[str, bytes, Format], Artifact] | None = None,
    ) -> None:
        self._env = dict(env)
        self._artifacts = None if fetch is None else ArtifactReader(fetch)
        self._keep = keep

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        return evaluate_and_fetch(expression, {**names, "env": self._env}, self._artifacts)

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        return render(template, {**names, "env": self._env}, self._artifacts)

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        return condition(expression, {**names, "env": self._env}, self._artifacts)

    def keep(self, name: str, value: Any) -> Any:
        if self._keep is None or not value:
            return value
        data = msgspec.json.encode(value)
        # References inside an artifact would not be found, so such a value stays inline.
        if len(data) <= INLINE_BYTES_MAX or holds_reference(value):
            return value
        try:
            return make_reference(self._keep(name, data, "json"))
        except StoreRefused:
            return value  # it may fit into the log; otherwise the log reports the problem


def _make_failure(
    expression: Expression, reason: str, kind: type[ExpressionFailed] = ExpressionFailed
) -> ExpressionFailed:
    return kind(f"'{expression.source}': {reason}", expression=expression.source, reason=reason)


class _PathProgram:
    """A plain path, evaluated without an engine: the value is returned unchanged, whatever its size."""

    def __init__(self, source: str, path: tuple[str | int, ...], paths: tuple[Path, ...]) -> None:
        self.expression = Expression(source, reads(paths))
        self.paths = paths
        self._path = path

    def evaluate(self, names: Mapping[str, Any], artifacts: ArtifactReader | None) -> Any:
        value: Any = names
        for depth, field in enumerate(self._path):
            # An artifact contains no references.
            if artifacts is not None and depth and is_artifact(value):
                value = artifacts.read(_refuse_dropped(value))
                for at, inner in enumerate(self._path[depth:], depth):
                    value = _member(value, inner, at)
                return refuse_references_in(value)
            value = _member(value, field, depth)
        return value


def _member(value: Any, field: str | int, depth: int) -> Any:
    # Nearly all values are dicts, and the isinstance check takes longer than the rest.
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
    """An expression for the engine, which gets only the paths that it reads.

    If it may take long, it is evaluated in a separate process with limits.
    """

    # Values of up to this many bytes were found to be fast, so smaller ones need no estimate.
    _safe_bytes = -1

    def __init__(self, source: str, analysis: Analysis) -> None:
        paths = analysis.paths
        self.expression = Expression(source, reads(paths))
        # Shortest first: a value that is copied whole is not entered again.
        self.paths = tuple(sorted(paths, key=len)) if len(paths) > 1 else paths
        self._reads_around = analysis.reads_around

    @cached_property
    def compiled(self) -> cel.Program:
        return cel.engine().compile(self.expression.source)

    @cached_property
    def _cost(self) -> cel_cost.Cost:
        from mulligan.language.cel import cel_cost

        return cel_cost.cost(tokens(self.expression.source), reads_around=self._reads_around)

    def evaluate(self, names: Mapping[str, Any], artifacts: ArtifactReader | None) -> Any:
        read = _select_paths(names, self.paths, artifacts)
        if self._may_take_long(read, cel.checked_json(read)):
            from mulligan.language.cel import cel_process

            value = cel_process.evaluate(self.compiled, read)
        else:
            value = cel.plain(self.compiled.evaluate(read))
        return value if artifacts is None else refuse_references_in(value)

    def _may_take_long(self, read: dict[str, Any], encoded: bytes) -> bool:

        if len(encoded) <= self._safe_bytes:
            return False
        # Every value takes at least two bytes.
        values = len(encoded) // 2 + 1
        from mulligan.language.cel import cel_cost

        if not self._is_long(cel_cost.Size(len(encoded), values, values)):
            self._safe_bytes = len(encoded)
            return False
        rough = cel_cost.rough_size(encoded)
        return self._is_long(rough) and self._is_long(cel_cost.close_size(read, rough))

    def _is_long(self, size: cel_cost.Size) -> bool:

        seconds = self._cost.seconds_max(size, copies_deeply=cel.engine().copies_deeply)
        from mulligan.language.cel import cel_cost

        return seconds > cel_cost.DIRECT_SECONDS_MAX


def _select_paths(
    names: Mapping[str, Any], paths: tuple[Path, ...], artifacts: ArtifactReader | None
) -> dict[str, Any]:
    """The part of `names` on `paths` (shortest first), with artifacts replaced by their values."""
    selected: dict[str, Any] = {}
    taken: set[Path] = set()
    for path in paths:
        if not any(path[:length] in taken for length in range(1, len(path))):
            taken.add(path[: _copy_path(names, selected, path, artifacts)])
    return selected


def _copy_path(
    source: Mapping[str, Any], selected: dict[str, Any], path: Path, artifacts: ArtifactReader | None
) -> int:
    """Copy the value at the path; return how many of its fields were used, since the rest is copied whole."""
    for depth, field in enumerate(path, 1):
        if field not in source:
            return depth
        inner = source[field]
        if depth == len(path) or not isinstance(inner, Mapping) or (artifacts is not None and is_artifact(inner)):
            inner = _refuse_dropped(inner)
            selected[field] = inner if artifacts is None else artifacts.fill_in(inner)
            return depth
        source, selected = inner, selected.setdefault(field, {})
    return len(path)


@lru_cache(maxsize=PROGRAMS_MAX)
def _program(source: str) -> _PathProgram | _EngineProgram:
    """The cached program of `source`; BadToken if it is not a valid expression."""
    if len(source) > SOURCE_CHARS_MAX:
        raise BadToken(f"it is longer than {SOURCE_CHARS_MAX} characters", 0, 1)
    if _DOTTED.fullmatch(source):
        path = tuple(source.split("."))
        if _NOT_NAMES.isdisjoint(path):
            return _PathProgram(source, path, (path,))
    if simple := analyse_simple(source):
        return _EngineProgram(source, simple)
    found = tokens(source)
    if not found:
        raise BadToken("it is empty", 0, 1)
    analysis = analyse(found)
    if analysis.plain is not None:
        return _PathProgram(source, analysis.plain, analysis.paths)
    program = _EngineProgram(source, analysis)
    if not is_surely_valid(found):
        try:
            _ = program.compiled
        except CelRefused as refused:
            raise _bad_token(source, found, refused) from refused
    return program


def _bad_token(source: str, found: list[Token], refused: CelRefused) -> BadToken:
    """An engine's syntax error in plain words, at its token."""
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
    return BadToken(_explain(refused.reason), offset, len(at.text) if at.offset == offset else 1)


def _offender(found: list[Token], at: Token) -> Token:
    """The token to point at: an engine reads the `not` of `not x` as a name and reports the next token."""
    before = found[found.index(at) - 1]
    return before if before.text == "not" and before.offset < at.offset else at


def _explain(reason: str) -> str:
    if "has()" in reason:
        return "has() takes a field, such as has(inputs.x)"
    if reason.startswith("reserved identifier: "):
        return f"'{reason.partition(': ')[2]}' is a reserved word"
    if "string literal" in reason:
        return "the string has an invalid escape"
    if "simple" in reason:
        return "the first argument here must be the name of a variable"
    return reason[:1].lower() + reason[1:]


def _make_refusal(source: str, bad: BadToken, start: int) -> ExpressionRefused:
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
    meant = "!=" if _IS_NOT.match(source, bad.offset) else _CEL_EQUIVALENTS.get(word)
    if isinstance(bad, UnknownFunction) and bad.name == ANY_PATH:
        return (
            f"use it in paths ('cwd', 'logs', 'file' of a map), around the whole expression: ${{{ANY_PATH}(inputs.x)}}"
        )
    if isinstance(bad, UnknownFunction) and meant is None:
        translated = _CEL_FUNCTIONS.get(word)
        close = translated if translated in bad.known else most_similar(word, sorted(bad.known))
        return f"did you mean '{close}'?" if close else f"the functions here are {', '.join(sorted(bad.known))}"
    return f"did you mean '{meant}'?" if meant else ""


def _refuse_mixed_secrets(expression: Expression, start: int) -> None:
    secrets = [name for name in expression.reads if name.startswith("secrets.")]
    others = [name for name in expression.reads if not name.startswith("secrets.")]
    length = len(expression.source)
    if "secrets.*" in secrets:
        message = f"'{expression.source}' must name the secret it reads"
        raise ExpressionRefused(message, start, length, hint="write secrets.NAME")
    if secrets and others:
        message = f"'{expression.source}' reads '{secrets[0]}' and '{others[0]}': a secret must be read on its own"
        hint = "only workers know secrets: use two '${…}', one for each"
        raise ExpressionRefused(message, start, length, hint=hint)


# -- artifacts --------------------------------------------------------------------------------------------------------


# Several expressions of one turn read the same output: the latest values are cached, up to this size.
CACHED_BYTES_MAX = 16 * 1024 * 1024


class ArtifactReader:
    """Reads the values that references point to. A value inside an artifact is never treated as a reference."""

    def __init__(self, fetch: Callable[[Artifact], bytes]) -> None:
        self._fetch = fetch
        self._cached: dict[Artifact, Any] = {}

    def read(self, reference: dict[str, Any]) -> Any:
        """The value of the artifact; of a file its description. CelFailed if it is gone or damaged."""
        try:
            artifact = parse_reference(reference)
            if artifact.is_file:
                return artifact.description
            if artifact not in self._cached:
                self._cache(artifact, decode_content(artifact, self._fetch(artifact)))
        except (ArtifactGone, ArtifactDamaged) as error:
            raise CelFailed(error.message) from error
        return self._cached[artifact]

    def _cache(self, artifact: Artifact, value: Any) -> None:
        """Add a value and drop the oldest ones if the cache is full."""
        room = CACHED_BYTES_MAX - artifact.size
        for old in reversed(list(self._cached)):
            room -= old.size
            if room < 0:
                del self._cached[old]
        self._cached[artifact] = value

    def fill_in(self, value: Any) -> Any:
        """The value with each reference replaced by the value it points to."""
        return replace_references(value, self.read) if holds_reference(value) else value


def refuse_references_in(value: Any) -> Any:
    """The value itself; CelFailed if it contains what a fact would treat as a reference."""
    if holds_reference(value):
        raise CelFailed(f"it has the key '{KEY}' in it, which is reserved for artifacts")
    return value
