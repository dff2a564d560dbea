"""Who reads what: the names that an expression may use at a place, and the steps it reads, noted for the check."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END, Breaker, Expression, Input, Secret, Template, Workflow
from mulligan.language import expressions
from mulligan.language.expressions import ExpressionRefused, Hole
from mulligan.language.nodes import Mapping, Node, Noting, Refusal, Scalar, Source, describe, shorten
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import did_you_mean, listed

# Names that every expression may read, and those that exist in some places only.
ROOTS = frozenset({"inputs", "steps", "run", "env", "secrets", "files", "failure"})
# Names of what an attempt is given; many a script has variables of its own that are called so.
_OF_ATTEMPTS = frozenset({"attempt", "step"})
LOCAL_ROOTS = frozenset({"error", "output", "outputs", "index", "matrix"}) | _OF_ATTEMPTS
_UNKNOWN = {"inputs": "unknown_input", "secrets": "unknown_secret", "files": "unknown_file"}
_WHERE = {
    "error": "'error' is known in 'on_failure' and 'recovery_script'",
    "output": "'output' is known after the action has run: write steps.NAME.output",
    "outputs": "'outputs' is known in 'do' of a map: what the item's commands so far have given",
    "index": "'index' is known in 'do' of a map",
    "matrix": "'matrix' is known in a step with 'matrix'",
    "item": "'item' is known in a map",
    "attempt": "'attempt' is known in what an attempt is given: its action, 'env', 'cwd' and 'logs'",
}
NOBODY = ""
# What the core hands over, see `core.scope`.
STEP_FIELDS = ("output", "status", "failure", "visits", "attempts", "recovered", "handled", "warnings")
# Of a matrix as a whole. Which name is that of a matrix is known when all steps are read: see `check`.
MATRIX_FIELDS = ("output", "failed", "matrix")
ERROR_FIELDS = tuple(
    "code message severity retryable exit_code signal step item visit attempt at timestamp details trace cause "
    "handler_failure".split()
)
FAILURE_FIELDS = (*ERROR_FIELDS, "context")
OWN_STEP_FIELDS = ("name", "number")
RUN_FIELDS = ("id", "workflow", "round")
# `end` and `outputs` look back on the whole run.
END_RUN_FIELDS = (*RUN_FIELDS, "steps", "failures", "stopping")


# Strings in an expression, and the braces of other systems around a part of it.
_STRINGS = lazy_regex(r"""\"[^\"]*\"|'[^']*'""")
_BRACES = lazy_regex(r"\$\{([^{}]*)\}|\{\{([^{}]*)\}\}")
# A string that is a name in braces and nothing else; for one with more in it nobody can say what was meant.
_QUOTED_BRACES = lazy_regex(
    r"""(?P<quote>['"])(?:\$\{|\{\{)\s*(?P<inner>(?P<root>[A-Za-z_]\w*)(?:[.\[][^{}'"]*)?)\s*\}\}?(?P=quote)"""
)


class Place(NamedTuple):
    """An expression in the text of a node, to point at the names in it."""

    source: str
    node: Scalar
    offset: int

    def span(self, path: tuple[str, ...], depth: int) -> tuple[int, int]:
        """Where the name at `depth` of `path` stands in the node's text, and how long it is."""
        between = r"\s*(?:\.\s*|\[\s*['\"])"
        pattern = rf"(?<![\w.]){between.join(map(re.escape, path[: depth + 1]))}(?!\w)"
        found = re.search(pattern, self.source)
        length = len(path[depth])
        return (self.offset + found.end() - length, length) if found else (self.offset, len(self.source))


class Use(NamedTuple):
    """One step read by an expression of another."""

    reader: str | None
    step: str
    place: Place
    may_be_itself: bool
    # As written, from `steps` on.
    path: tuple[str, ...]
    # Whether the expression is a condition: true or false.
    is_condition: bool = False

    def refuse(self, code: str, message: str, source: Source, *, hint: str = "", depth: int = 1) -> Refusal:
        """A refusal that points at the step's name in the expression, or at the field of the path at `depth`."""
        offset, length = self.place.span(self.path, depth)
        return source.refuse_in(code, message, self.place.node, offset, length, hint=hint)


class Draft(msgspec.Struct):
    """The workflow while it is read: what its expressions may name, and what they named."""

    source: Source
    inputs: dict[str, Input] = {}
    secrets: dict[str, Secret] = {}
    files: dict[str, str] = {}
    breakers: dict[str, Breaker] = {}
    policies: Mapping | None = None
    # Those that mean the same wherever they are used, read.
    plain_policies: dict[str, Any] = {}
    handlers: Mapping | None = None
    # Names that some map of the file binds: anywhere else they are a slip.
    item_names: frozenset[str] = frozenset()
    shell_interpreter: str | None = None
    is_shell_strict: bool = True
    python_interpreter: str | None = None
    agent_provider: str | None = None
    uses: list[Use] = []
    # What of the sections at the top is used: `("inputs", "target")`, or `("inputs", "*")` for all of them.
    used: set[tuple[str, str]] = set()
    used_handlers: dict[str, int] = {}
    children: dict[str, Workflow] = {}
    includes: Includes | None = None
    # Reads the group of a step, which is given these names beside the file's own inputs; and which steps groups have.
    read_group: Callable[[Mapping, str, tuple[str, ...]], Workflow] | None = None
    grouped: dict[str, str] = {}
    # Of a group: the steps outside it, which nothing inside can read.
    outside: frozenset[str] = frozenset()


class Includes(Protocol):
    """Loads the files that `workflow` actions name."""

    def child(self, file: str, node: Node, source: Source) -> Workflow:
        """The checked workflow in `file`; its problems are its own, `node` is where it was named."""


class Scope(msgspec.Struct, frozen=True):
    """A place of the file: its step, and the names that hold there beside the roots."""

    draft: Draft
    owner: str
    # The step whose place in the graph counts; None may read every step, END that one, too, NOBODY reads none.
    reader: str | None = None
    names: frozenset[str] = frozenset()
    matrix: frozenset[str] = frozenset()
    may_read_itself: bool = False
    # Whether what is read is a condition as a whole.
    is_condition: bool = False
    open_handlers: tuple[str, ...] = ()
    # What the nearest `strict` says; None where there is none, and `defaults` decides.
    strict: bool | None = None

    @property
    def source(self) -> Source:
        return self.draft.source

    def knowing(self, *names: str) -> Scope:
        """The same place once more is known: after a failure, after a success."""
        return msgspec.structs.replace(self, names=self.names | set(names), may_read_itself=True)

    @property
    def is_shell_strict(self) -> bool:
        """Whether shell text of this place runs under `-euo pipefail`."""
        return self.draft.is_shell_strict if self.strict is None else self.strict

    def within(self, fields: Fields) -> Scope:
        """The scope of everything that stands in a step or command: `strict` holds for all shell text in it."""
        return msgspec.structs.replace(self, strict=fields["strict"]) if "strict" in fields else self

    @property
    def in_attempt(self) -> Scope:
        """The same place in what an attempt is given: there its number is known, and whose it is."""
        return msgspec.structs.replace(self, names=self.names | _OF_ATTEMPTS)

    @property
    def in_shell(self) -> Scope:
        """The same place in shell text, where `${attempt}` and `${step}` are the script's own variables."""
        return msgspec.structs.replace(self, names=self.names - _OF_ATTEMPTS)

    @property
    def looks_back(self) -> bool:
        """Whether it is asked when all is over, and may look at the whole run."""
        return self.reader is None or self.reader == END

    @property
    def noting(self) -> Noting:
        return self.draft.source.noting

    def note(self, refusal: Refusal) -> None:
        self.source.note(refusal)

    @property
    def known(self) -> frozenset[str]:
        return ROOTS | self.names | ({"matrix"} if self.matrix else frozenset())

    @property
    def offered(self) -> frozenset[str]:
        """The known names that there is something to read of."""
        empty = {root for root in _UNKNOWN if not getattr(self.draft, root)}
        return self.known - empty - ({"steps"} if self.reader == NOBODY else frozenset())

    @property
    def bare_names(self) -> frozenset[str]:
        """Names that are ours in shell text even without a dot; those that many a script has itself stay its own."""
        return self.names - {"error"} - _OF_ATTEMPTS


def condition(node: Node, scope: Scope) -> Expression:
    """A bare condition; `${…}` around the whole of it is allowed. The engine evaluates it, so it reads no secret."""
    return bare(node, msgspec.structs.replace(scope, is_condition=True))


def bare(node: Node, scope: Scope) -> Expression:
    """An expression that is written as a condition is, and may give any value: a list, what to sort by."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str | bool):
        raise scope.source.refuse("type", f"a condition is expected, and this is {describe(node)}", node)
    source, offset = expressions.condition_source(node.text)
    _refuse_braces(source, node, offset, scope)
    return without_secrets(checked(source, node, offset, scope), node, scope)


def _refuse_braces(source: str, node: Scalar, offset: int, scope: Scope) -> None:
    """A condition is one expression: braces around a part of it, or around a name in a string, are a habit from
    other systems. In a string they would be text, and the condition most likely always false.
    """
    without_strings = _STRINGS.sub(lambda text: " " * len(text[0]), source)
    found = list(_BRACES.finditer(without_strings))
    quoted = [part for part in _QUOTED_BRACES.finditer(source) if part["root"] in scope.known]
    if not found and not quoted:
        return
    first = min([*found, *quoted], key=lambda part: part.start())
    bare = source
    for part in sorted([*found, *quoted], key=lambda part: part.start(), reverse=True):
        inner = part["inner"] if part in quoted else source[slice(*part.span(part.lastindex or 0))]
        bare = bare[: part.start()] + inner.strip() + bare[part.end() :]
    braces = "${…}" if "$" in first[0] else "{{ … }}"
    message = f"expressions take no {braces} inside: names stand in them as they are"
    start, end = first.span()
    hint = f"write {_in_cel(bare.strip())}"
    raise scope.source.refuse_in("expression", message, node, offset + start, end - start, hint=hint)


def _in_cel(source: str) -> str:
    """The words of other languages as operators, where no string could hold them."""
    if "'" in source or '"' in source:
        return source
    for word, operator in ((r"\bnot\s+", "!"), (r"\band\b", "&&"), (r"\bor\b", "||")):
        source = re.sub(word, operator, source)
    return source


def without_secrets(expression: Expression, node: Node, scope: Scope) -> Expression:
    secret = next((name for name in expression.reads if name.startswith("secrets.")), None)
    if secret:
        raise scope.source.refuse(
            "secret", f"'{secret}' is known to workers only, and this is read by the engine", node
        )
    return expression


def template(node: Node, scope: Scope) -> Template:
    """Text with holes. A value that is not text goes in as it was written."""
    if not isinstance(node, Scalar):
        raise scope.source.refuse("type", f"a text is expected, and this is {describe(node)}", node)
    if node.value is None:
        return Template(("",))
    if "${" not in node.text:
        return Template((node.text,))
    return Template(tuple(part if isinstance(part, str) else hole(part, node, scope) for part in holes(node, scope)))


def path_template(node: Node, scope: Scope) -> Template:
    """A path with holes. The value of a hole that is `any_path(…)` as a whole may lead anywhere."""
    if not isinstance(node, Scalar) or "any_path" not in node.text:
        return template(node, scope)
    return Template(
        tuple(part if isinstance(part, str) else _path_hole(part, node, scope) for part in holes(node, scope))
    )


def _path_hole(part: Hole, node: Scalar, scope: Scope) -> Expression:
    inner = expressions.argument_of(expressions.ANY_PATH, part)
    if inner is None:
        return hole(part, node, scope)
    expression = without_secrets(hole(inner, node, scope), node, scope)
    return msgspec.structs.replace(expression, any_path=True)


def holes(node: Scalar, scope: Scope) -> tuple[str | Hole, ...]:
    try:
        return expressions.find_holes(node.text)
    except ExpressionRefused as refused:
        raise _refuse(refused, node, scope) from None


def hole(part: Hole, node: Scalar, scope: Scope) -> Expression:
    return checked(part.source, node, part.source_offset, scope)


def checked(source: str, node: Scalar, offset: int, scope: Scope) -> Expression:
    """An expression whose every name exists here. `offset` is where it starts in the text of `node`."""
    try:
        expression = expressions.check(source, offset=offset)
    except ExpressionRefused as refused:
        raise _refuse(refused, node, scope) from None
    place = Place(expression.source, node, offset + len(source) - len(source.lstrip()))
    for path in expressions.paths(expression):
        _judge(path, place, scope)
    return expression


def _refuse(refused: ExpressionRefused, node: Scalar, scope: Scope) -> Refusal:
    return scope.source.refuse_in(
        "expression", refused.message, node, refused.offset, refused.length, hint=refused.hint
    )


def _judge(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    root = path[0]
    if root not in scope.known:
        hint = hint_for_name(root, place.source, scope)
        raise _unknown(path, 0, place, scope, f"'{root}' is not known here", hint)
    judge = _JUDGES.get(root)
    if judge:
        judge(path, place, scope)


def hint_for_name(name: str, expression: str, scope: Scope) -> str:
    """What was meant by a name that is not known here, else the names that are."""
    meant = _WHERE.get(name) or expressions.hint_for_name(name, expression) or did_you_mean(name, scope.known)
    return meant or f"the names here are {', '.join(sorted(scope.offered))}"


def _unknown(path: tuple[str, ...], depth: int, place: Place, scope: Scope, message: str, hint: str) -> Refusal:
    code = "unknown_name" if depth == 0 else _UNKNOWN.get(path[0], "unknown_field") if depth == 1 else "unknown_field"
    offset, length = place.span(path, depth)
    return scope.source.refuse_in(code, message, place.node, offset, length, hint=hint)


def _judge_declared(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    """`inputs.x`, `secrets.x` and `files.x` are declared at the top of the file."""
    root = path[0]
    known: Any = scope.matrix if root == "matrix" else getattr(scope.draft, root)
    scope.draft.used.add((root, path[1] if len(path) > 1 else "*"))
    if root == "matrix" and len(path) == 1:
        hint = f"write matrix.{min(known)}"
        raise _unknown(path, 0, place, scope, "'matrix' must name the value it reads", hint)
    if len(path) > 1 and path[1] not in known:
        word = "matrix value" if root == "matrix" else root.rstrip("s")
        hint = did_you_mean(path[1], known) or ("" if root == "matrix" else f"declare it under '{root}:'")
        raise _unknown(path, 1, place, scope, f"there is no {word} '{path[1]}'", hint)


def _judge_env(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    """What an expression reads from the environment is recorded, and a secret never is."""
    for name, secret in scope.draft.secrets.items():
        if secret.env is None:
            continue
        if len(path) == 1:
            message = f"'env' must name the variable it reads: '{secret.env}' is the secret '{name}'"
            raise scope.source.refuse_in("secret", message, place.node, *place.span(path, 0), hint="write env.NAME")
        if path[1] == secret.env:
            message, hint = f"'env.{secret.env}' is the secret '{name}', and would be recorded", f"write secrets.{name}"
            raise scope.source.refuse_in("secret", message, place.node, *place.span(path, 1), hint=hint)


def _judge_step(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    if scope.reader == NOBODY:
        raise _unknown(path, 0, place, scope, f"{scope.owner} hold for all steps, so they can read none", "")
    if len(path) == 1:
        if scope.looks_back:
            return
        hint = 'write steps.NAME, or steps["build-image"] where there is a hyphen'
        raise _unknown(path, 0, place, scope, "'steps' must name the step it reads", hint)
    if path[2:3] == () or path[2] not in MATRIX_FIELDS:
        _judge_step_fields(path, 2, place, scope)
    scope.draft.uses.append(Use(scope.reader, path[1], place, scope.may_read_itself, path, scope.is_condition))


def _judge_own_step(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    """`step` is the step itself; whoever means another one has forgotten a letter."""
    if len(path) > 1 and path[1] not in OWN_STEP_FIELDS:
        hint = did_you_mean(path[1], OWN_STEP_FIELDS) or f"did you mean 'steps.{path[1]}'?"
        raise _unknown(path, 1, place, scope, f"'step' has no '{path[1]}'", hint)


def _judge_step_fields(path: tuple[str, ...], depth: int, place: Place, scope: Scope) -> None:
    _require_field(path, depth, place, scope, "a step", STEP_FIELDS)
    if path[depth : depth + 1] == ("failure",):
        _judge_failure_fields(path, depth + 1, place, scope, "a failure", ERROR_FIELDS)


def _judge_error(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    _judge_failure_fields(path, 1, place, scope, "an error", ERROR_FIELDS)


def _judge_failure(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    _judge_failure_fields(path, 1, place, scope, "a failure", FAILURE_FIELDS)


def _judge_failure_fields(
    path: tuple[str, ...], depth: int, place: Place, scope: Scope, what: str, fields: tuple[str, ...]
) -> None:
    """The fields of a failure from `depth` on: the failure of its handler is a failure in turn."""
    _require_field(path, depth, place, scope, what, fields)
    if path[depth : depth + 1] == ("handler_failure",):
        _judge_failure_fields(path, depth + 1, place, scope, "a failure", ERROR_FIELDS)


def _judge_run(path: tuple[str, ...], place: Place, scope: Scope) -> None:
    if scope.looks_back:
        _require_field(path, 1, place, scope, "'run'", END_RUN_FIELDS)
        if path[1:2] == ("steps",):
            _judge_step_fields(path, 3, place, scope)
    elif len(path) > 1 and path[1] in END_RUN_FIELDS and path[1] not in RUN_FIELDS:
        hint = f"'run.{path[1]}' is known in 'end' and 'outputs'"
        raise _unknown(path, 1, place, scope, f"'run' has no '{path[1]}' here", hint)
    else:
        _require_field(path, 1, place, scope, "'run'", RUN_FIELDS)


def _require_field(
    path: tuple[str, ...], depth: int, place: Place, scope: Scope, what: str, fields: tuple[str, ...]
) -> None:
    """Refuse the field at `depth`, where there is one, unless it is one of `fields`."""
    if len(path) > depth and path[depth] not in fields:
        hint = did_you_mean(path[depth], fields) or f"it has {listed(fields, 'and')}"
        raise _unknown(path, depth, place, scope, f"{what} has no '{path[depth]}'", hint)


_JUDGES: dict[str, Any] = {
    "inputs": _judge_declared,
    "secrets": _judge_declared,
    "env": _judge_env,
    "files": _judge_declared,
    "matrix": _judge_declared,
    "steps": _judge_step,
    "step": _judge_own_step,
    "error": _judge_error,
    "failure": _judge_failure,
    "run": _judge_run,
}


def refuse_name(word: str, node: Node, what: str, source: Source) -> Refusal:
    """A name of the user's that is one of ours already."""
    return source.refuse("name", f"{what} cannot be called '{shorten(word)}', which is a name of ours", node)
