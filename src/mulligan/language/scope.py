"""The names that an expression may use at a position of the file, and a record of the steps that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END, Breaker, Expression, Input, Secret, Step, StepTool, Template, Workflow
from mulligan.language import expressions
from mulligan.language.expressions import Checked, ExpressionRefused, Placeholder
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, ProblemCollector, Refusal, Scalar, Source, describe, shorten
from mulligan.language.text.suggestions import did_you_mean, quote_list

ReadByEngine = TypeVar("ReadByEngine", Expression, Template)

# Names that every expression may read, and those that exist only in some positions.
ROOTS = frozenset({"inputs", "steps", "run", "env", "secrets", "files", "failure"})
# Known only in what an attempt gets. Scripts often have their own variables with these names.
ATTEMPT_NAMES = frozenset({"attempt", "step"})
_SCRIPTS_OWN = ATTEMPT_NAMES | {"error", "previous"}
LOCAL_ROOTS = frozenset({"error", "output", "outputs", "index", "matrix"}) | ATTEMPT_NAMES
_UNKNOWN = {"inputs": "unknown_input", "secrets": "unknown_secret", "files": "unknown_file"}
_WHERE_KNOWN = {
    "error": "'error' is known in 'on_failure' and 'recovery_script'",
    "output": "'output' is known after the action has run: write steps.NAME.output",
    "outputs": "'outputs' is known in 'do' of a map: what the item's commands so far have given",
    "index": "'index' is known in 'do' of a map",
    "previous": "'previous' is known in 'do' of a map with 'max_parallel: 1', but not in shell text: pass it in 'env'",
    "matrix": "'matrix' is known in a step with 'matrix'",
    "item": "'item' is known in a map",
    "schedule": "'schedule' is known in the inputs of a schedule: read an input that it fills in",
    "attempt": "'attempt' is known in what an attempt is given: its action, 'env', 'cwd' and 'logs'",
}
NO_STEPS = ""
# The fields that the core provides, see `core.state.scope`.
STEP_FIELDS = ("output", "status", "failure", "visits", "attempts", "recovered", "handled", "warnings")
# Fields of a matrix as a whole. Which names are matrices is known after all steps are read: see `graph_checks`.
MATRIX_FIELDS = ("output", "failed", "matrix")
ERROR_FIELDS = tuple(
    "code message severity retryable exit_code signal step item visit attempt at timestamp details trace cause "
    "handler_failure exceptions traceback".split()
)
FAILURE_FIELDS = (*ERROR_FIELDS, "context")
OWN_STEP_FIELDS = ("name", "number")
RUN_FIELDS = ("id", "workflow", "round", "data", "workspace")
# Known in `end` and `outputs`, which are evaluated after all steps.
END_RUN_FIELDS = (*RUN_FIELDS, "steps", "failures", "stopping")


# Strings in an expression, and the braces of other systems around a part of it.
_STRINGS = lazy_regex(r"""\"[^\"]*\"|'[^']*'""")
_BRACES = lazy_regex(r"\$\{([^{}]*)\}|\{\{([^{}]*)\}\}")
# A string that contains only a name in braces. With more text in it the meaning is unclear.
_QUOTED_BRACES = lazy_regex(
    r"""(?P<quote>['"])(?:\$\{|\{\{)\s*(?P<inner>(?P<root>[A-Za-z_]\w*)(?:[.\[][^{}'"]*)?)\s*\}\}?(?P=quote)"""
)


class Position(NamedTuple):
    """The position of an expression in the text of a node."""

    source: str
    node: Scalar
    offset: int

    def span(self, path: tuple[str, ...], depth: int) -> tuple[int, int]:
        """The offset and length of the name at `depth` of `path` in the node's text."""
        return span_of_name(self.source, self.offset, path, depth)


def span_of_name(source: str, offset: int, path: tuple[str, ...], depth: int) -> tuple[int, int]:
    """The offset and length of the name at `depth` of `path` in the text in which `source` starts at `offset`."""
    between = r"\s*(?:\.\s*|\[\s*['\"])"
    pattern = rf"(?<![\w.]){between.join(map(re.escape, path[: depth + 1]))}(?!\w)"
    found = re.search(pattern, source)
    length = len(path[depth])
    return (offset + found.end() - length, length) if found else (offset, len(source))


class Use(NamedTuple):
    """A step that an expression reads."""

    reader: str | None
    step: str
    position: Position
    may_be_itself: bool
    # The path as written, starting with `steps`.
    path: tuple[str, ...]
    # Whether the expression is a condition: true or false.
    is_condition: bool = False

    def refuse(self, code: str, message: str, source: Source, *, hint: str = "", depth: int = 1) -> Refusal:
        """A refusal that points at the step's name in the expression, or at the field at `depth`."""
        offset, length = self.position.span(self.path, depth)
        return source.refuse_in(code, message, self.position.node, offset, length, hint=hint)


class Draft(msgspec.Struct):
    """The workflow while it is read: the names that expressions may use, and those that they used."""

    source: Source
    inputs: dict[str, Input] = {}
    secrets: dict[str, Secret] = {}
    files: dict[str, str] = {}
    breakers: dict[str, Breaker] = {}
    policies: Mapping | None = None
    # Policies that were read and mean the same wherever they are used.
    plain_policies: dict[str, Any] = {}
    # A step that says nothing but its action, without name and action: what all such steps of the file have.
    plain_step: Step | None = None
    # The same for rules that are written where they are used, by the identity of their node.
    plain_retries: dict[int, Any] = {}
    handlers: Mapping | None = None
    # Names that some map of the file binds. Elsewhere they are most likely a mistake.
    item_names: frozenset[str] = frozenset()
    shell_interpreter: str | None = None
    is_shell_strict: bool = True
    python_interpreter: str | None = None
    # Of python actions that name none.
    requirements: tuple[str, ...] = ()
    agent_provider: str | None = None
    uses: list[Use] = []
    # The declarations that are used: `("inputs", "target")`, or `("inputs", "*")` for all of a section.
    used: set[tuple[str, str]] = set()
    used_handlers: dict[str, int] = {}
    children: dict[str, Workflow] = {}
    includes: Includes | None = None
    # Reads the group of a step, which gets these names in addition to the inputs of the file.
    read_group: Callable[[Mapping, str, tuple[str, ...]], Workflow] | None = None
    # The steps inside groups, each with the name of its group.
    grouped: dict[str, str] = {}
    # For a group: the steps outside it, which nothing inside can read.
    outside: frozenset[str] = frozenset()
    # The steps that agents call, by name; and the names of the steps of the graph.
    tools: dict[str, StepTool] = {}
    step_names: frozenset[str] = frozenset()


class Includes(Protocol):
    """Loads the files that `workflow` actions name."""

    def child(self, file: str, node: Node, source: Source) -> Workflow:
        """The checked workflow in `file`; `node` is where the file is named."""


class Scope(msgspec.Struct, frozen=True):
    """A position in the file: its step, and the names that are known there in addition to the roots."""

    draft: Draft
    owner: str
    # The step that reads. None may read every step, END also the end itself, NO_STEPS may read none.
    reader: str | None = None
    names: frozenset[str] = frozenset()
    matrix: frozenset[str] = frozenset()
    may_read_itself: bool = False
    # Whether the whole expression is a condition.
    is_condition: bool = False
    open_handlers: tuple[str, ...] = ()
    # The nearest `strict`; None if there is none, then `defaults` decides.
    strict: bool | None = None
    # In a step that agents call: its own inputs.
    tool_inputs: frozenset[str] | None = None

    @property
    def source(self) -> Source:
        return self.draft.source

    def with_names(self, *names: str) -> Scope:
        """The same position with more names, after a failure or a success."""
        return msgspec.structs.replace(self, names=self.names | set(names), may_read_itself=True)

    @property
    def is_shell_strict(self) -> bool:
        """Whether shell text at this position runs with `-euo pipefail`."""
        return self.draft.is_shell_strict if self.strict is None else self.strict

    def for_fields(self, fields: Fields) -> Scope:
        """The scope inside a step or command, whose `strict` applies to all its shell text."""
        return msgspec.structs.replace(self, strict=fields["strict"]) if "strict" in fields else self

    @property
    def in_attempt(self) -> Scope:
        """The same position in what an attempt gets: its step and number are known there."""
        return msgspec.structs.replace(self, names=self.names | ATTEMPT_NAMES)

    @property
    def in_shell(self) -> Scope:
        """The same position in shell text, where `${attempt}` and `${step}` are variables of the script."""
        return msgspec.structs.replace(self, names=self.names - ATTEMPT_NAMES)

    @property
    def is_after_run(self) -> bool:
        """Whether it is evaluated after all steps, and may read the whole run."""
        return self.reader is None or self.reader == END

    @property
    def noting(self) -> ProblemCollector:
        return self.draft.source.noting

    def note(self, refusal: Refusal) -> None:
        self.source.note(refusal)

    @property
    def known_names(self) -> frozenset[str]:
        return _known_names(self.names, bool(self.matrix))

    @property
    def readable_names(self) -> frozenset[str]:
        """The known names under which something is declared."""
        empty = {root for root in _UNKNOWN if not getattr(self.draft, root)}
        return self.known_names - empty - ({"steps"} if self.reader == NO_STEPS else frozenset())

    @property
    def bare_names(self) -> frozenset[str]:
        """Our names in shell text without a field; names that scripts often use themselves are excluded."""
        return self.names - _SCRIPTS_OWN


@lru_cache(maxsize=256)
def _known_names(names: frozenset[str], has_matrix: bool) -> frozenset[str]:
    return ROOTS | names | ({"matrix"} if has_matrix else frozenset())


def read_condition(node: Node, scope: Scope) -> Expression:
    """A condition, with or without `${…}` around it. The engine evaluates it, so it may not read secrets."""
    return bare_expression(node, msgspec.structs.replace(scope, is_condition=True))


def bare_expression(node: Node, scope: Scope) -> Expression:
    """An expression written like a condition, of any type: a list, a sort key."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str | bool):
        raise scope.source.refuse("type", f"a condition is expected, and this is {describe(node)}", node)
    source, offset = expressions.condition_source(node.text)
    _refuse_braces(source, node, offset, scope)
    return require_no_secrets(check_expression(source, node, offset, scope), node, scope)


def _refuse_braces(source: str, node: Scalar, offset: int, scope: Scope) -> None:
    """Refuse braces around a part of a condition or around a name in a string, a habit from other systems.

    In a string they would be plain text, and the condition most likely always false.
    """
    without_strings = _STRINGS.sub(lambda text: " " * len(text[0]), source)
    found = list(_BRACES.finditer(without_strings))
    quoted = [part for part in _QUOTED_BRACES.finditer(source) if part["root"] in scope.known_names]
    if not found and not quoted:
        return
    first = min([*found, *quoted], key=lambda part: part.start())
    bare = source
    for part in sorted([*found, *quoted], key=lambda part: part.start(), reverse=True):
        inner = part["inner"] if part in quoted else source[slice(*part.span(part.lastindex or 0))]
        bare = bare[: part.start()] + inner.strip() + bare[part.end() :]
    braces = "${…}" if "$" in first[0] else "{{ … }}"
    message = f"an expression takes no {braces} around names"
    start, end = first.span()
    hint = f"write {_to_cel(bare.strip())}"
    raise scope.source.refuse_in("expression", message, node, offset + start, end - start, hint=hint)


def _to_cel(source: str) -> str:
    """Replace the operators of other languages, unless there are strings that might contain them."""
    if "'" in source or '"' in source:
        return source
    for word, operator in ((r"\bnot\s+", "!"), (r"\band\b", "&&"), (r"\bor\b", "||")):
        source = re.sub(word, operator, source)
    return source


def require_no_secrets(expression: ReadByEngine, node: Node, scope: Scope) -> ReadByEngine:
    secret = next((name for name in expression.reads if name.startswith("secrets.")), None)
    if secret:
        message = f"'{secret}' can only be read by workers, and this expression is evaluated by the engine"
        raise scope.source.refuse("secret", message, node)
    return expression


def read_template(node: Node, scope: Scope) -> Template:
    """Text with placeholders. A value that is not text is used as it was written."""
    if not isinstance(node, Scalar):
        raise scope.source.refuse("type", f"a text is expected, and this is {describe(node)}", node)
    if node.value is None:
        return Template(("",))
    if "${" not in node.text:
        return Template((node.text,))
    return _checked_template(node, scope, check_placeholder)


def read_path_template(node: Node, scope: Scope) -> Template:
    """A path with placeholders. The value of `${any_path(…)}` may point anywhere."""
    if not isinstance(node, Scalar) or "any_path" not in node.text:
        return read_template(node, scope)
    return _checked_template(node, scope, _check_path_placeholder)


def _checked_template(
    node: Scalar, scope: Scope, check: Callable[[Placeholder, Scalar, Scope], Expression]
) -> Template:
    parts = placeholders_in(node, scope)
    return Template(tuple(part if isinstance(part, str) else check(part, node, scope) for part in parts))


def _check_path_placeholder(part: Placeholder, node: Scalar, scope: Scope) -> Expression:
    inner = expressions.argument_of(expressions.ANY_PATH, part)
    if inner is None:
        return check_placeholder(part, node, scope)
    expression = require_no_secrets(check_placeholder(inner, node, scope), node, scope)
    return msgspec.structs.replace(expression, any_path=True)


def placeholders_in(node: Scalar, scope: Scope) -> tuple[str | Placeholder, ...]:
    try:
        return expressions.find_placeholders(node.text)
    except ExpressionRefused as refused:
        raise _refuse(refused, node, scope) from None


def check_placeholder(part: Placeholder, node: Scalar, scope: Scope) -> Expression:
    return check_expression(part.source, node, part.source_offset, scope)


def check_expression(source: str, node: Scalar, offset: int, scope: Scope) -> Expression:
    """A checked expression whose names all exist here. `offset` is where it starts in the text of `node`."""
    try:
        expression = expressions.check(source, offset=offset)
    except ExpressionRefused as refused:
        raise _refuse(refused, node, scope) from None
    checked = Checked(expression, expressions.paths(expression))
    return check_names(checked, node, offset + len(source) - len(source.lstrip()), scope)


def check_names(checked: Checked, node: Scalar, offset: int, scope: Scope) -> Expression:
    """The same for an expression of which no more than its names is to be checked."""
    position, known = Position(checked.expression.source, node, offset), scope.known_names
    for path in checked.paths:
        root = path[0]
        if root not in known:
            hint = hint_for_name(root, position.source, scope)
            raise _unknown(path, 0, position, scope, f"'{root}' is not known here", hint)
        if check := _CHECKS.get(root):
            check(path, position, scope)
    return checked.expression


def _refuse(refused: ExpressionRefused, node: Scalar, scope: Scope) -> Refusal:
    return scope.source.refuse_in(
        "expression", refused.message, node, refused.offset, refused.length, hint=refused.hint
    )


def hint_for_name(name: str, expression: str, scope: Scope) -> str:
    """A suggestion for an unknown name, or the names that are known here."""
    meant = (
        _WHERE_KNOWN.get(name) or expressions.hint_for_name(name, expression) or did_you_mean(name, scope.known_names)
    )
    return meant or f"the names here are {', '.join(sorted(scope.readable_names))}"


def _unknown(path: tuple[str, ...], depth: int, position: Position, scope: Scope, message: str, hint: str) -> Refusal:
    code = "unknown_name" if depth == 0 else _UNKNOWN.get(path[0], "unknown_field") if depth == 1 else "unknown_field"
    offset, length = position.span(path, depth)
    return scope.source.refuse_in(code, message, position.node, offset, length, hint=hint)


def _check_declared(path: tuple[str, ...], position: Position, scope: Scope) -> None:
    """`inputs.x`, `secrets.x` and `files.x` are declared at the top of the file."""
    root = path[0]
    if root == "inputs" and len(path) > 1 and scope.tool_inputs is not None and path[1] in scope.tool_inputs:
        return
    known: Any = scope.matrix if root == "matrix" else getattr(scope.draft, root)
    scope.draft.used.add((root, path[1] if len(path) > 1 else "*"))
    if root == "matrix" and len(path) == 1:
        hint = f"write matrix.{min(known)}"
        raise _unknown(path, 0, position, scope, "'matrix' must name the value it reads", hint)
    if len(path) > 1 and path[1] not in known:
        word = "matrix value" if root == "matrix" else root.rstrip("s")
        hint = did_you_mean(path[1], known) or ("" if root == "matrix" else f"declare it under '{root}:'")
        raise _unknown(path, 1, position, scope, f"there is no {word} '{path[1]}'", hint)


def _check_env(path: tuple[str, ...], position: Position, scope: Scope) -> None:
    """Refuse secrets read through `env`: environment values that expressions read are recorded."""
    for name, secret in scope.draft.secrets.items():
        if secret.env is None:
            continue
        if len(path) == 1:
            message = f"'env' must name the variable it reads: '{secret.env}' is the secret '{name}'"
            raise scope.source.refuse_in(
                "secret", message, position.node, *position.span(path, 0), hint="write env.NAME"
            )
        if path[1] == secret.env:
            message, hint = f"'env.{secret.env}' is the secret '{name}', and would be recorded", f"write secrets.{name}"
            raise scope.source.refuse_in("secret", message, position.node, *position.span(path, 1), hint=hint)


def _check_step(path: tuple[str, ...], position: Position, scope: Scope) -> None:
    if scope.tool_inputs is not None:
        message = "an agent calls this step at any time, so it cannot read other steps"
        raise _unknown(path, 0, position, scope, message, "pass the value as one of its inputs")
    if scope.reader == NO_STEPS:
        message = f"{scope.owner} applies to all steps, so it cannot read any of them"
        raise _unknown(path, 0, position, scope, message, "")
    if len(path) == 1:
        if scope.is_after_run:
            return
        hint = 'write steps.NAME, or steps["build-image"] where there is a hyphen'
        raise _unknown(path, 0, position, scope, "'steps' must name the step it reads", hint)
    if path[2:3] == () or path[2] not in MATRIX_FIELDS:
        _check_step_fields(path, 2, position, scope)
    scope.draft.uses.append(Use(scope.reader, path[1], position, scope.may_read_itself, path, scope.is_condition))


def _check_own_step(path: tuple[str, ...], position: Position, scope: Scope) -> None:
    """`step` is the step itself. Another step is `steps.NAME`."""
    if len(path) > 1 and path[1] not in OWN_STEP_FIELDS:
        hint = did_you_mean(path[1], OWN_STEP_FIELDS) or f"did you mean 'steps.{path[1]}'?"
        raise _unknown(path, 1, position, scope, f"'step' has no '{path[1]}'", hint)


def _check_step_fields(path: tuple[str, ...], depth: int, position: Position, scope: Scope) -> None:
    _require_field(path, depth, position, scope, "a step", STEP_FIELDS)
    if path[depth : depth + 1] == ("failure",):
        _check_failure_fields(path, depth + 1, position, scope, "a failure", ERROR_FIELDS)


def _check_failure_fields(
    path: tuple[str, ...], depth: int, position: Position, scope: Scope, what: str, fields: tuple[str, ...]
) -> None:
    """The fields of a failure from `depth` on; `handler_failure` is a failure again."""
    _require_field(path, depth, position, scope, what, fields)
    if path[depth : depth + 1] == ("handler_failure",):
        _check_failure_fields(path, depth + 1, position, scope, "a failure", ERROR_FIELDS)


def _check_run(path: tuple[str, ...], position: Position, scope: Scope) -> None:
    if scope.is_after_run:
        _require_field(path, 1, position, scope, "'run'", END_RUN_FIELDS)
        if path[1:2] == ("steps",):
            _check_step_fields(path, 3, position, scope)
    elif len(path) > 1 and path[1] in END_RUN_FIELDS and path[1] not in RUN_FIELDS:
        hint = f"'run.{path[1]}' is known in 'end' and 'outputs'"
        raise _unknown(path, 1, position, scope, f"'run' has no '{path[1]}' here", hint)
    else:
        _require_field(path, 1, position, scope, "'run'", RUN_FIELDS)


def _require_field(
    path: tuple[str, ...], depth: int, position: Position, scope: Scope, what: str, fields: tuple[str, ...]
) -> None:
    """Refuse the field at `depth`, if there is one, unless it is one of `fields`."""
    if len(path) > depth and path[depth] not in fields:
        hint = did_you_mean(path[depth], fields) or f"it has {quote_list(fields, 'and')}"
        raise _unknown(path, depth, position, scope, f"{what} has no '{path[depth]}'", hint)


_CHECKS: dict[str, Any] = {
    "inputs": _check_declared,
    "secrets": _check_declared,
    "env": _check_env,
    "files": _check_declared,
    "matrix": _check_declared,
    "steps": _check_step,
    "step": _check_own_step,
    "error": lambda path, at, scope: _check_failure_fields(path, 1, at, scope, "an error", ERROR_FIELDS),
    "failure": lambda path, at, scope: _check_failure_fields(path, 1, at, scope, "a failure", FAILURE_FIELDS),
    "run": _check_run,
}


def refuse_name(word: str, node: Node, what: str, source: Source) -> Refusal:
    """The refusal of a name that is reserved."""
    return source.refuse("name", f"{what} cannot be called '{shorten(word)}', which is a reserved name", node)
