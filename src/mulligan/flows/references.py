"""References: what a step will return, what an input will be. They stand for values that do not exist yet.

Operators on a reference make an expression in CEL, which the engine evaluates during the run. Python itself cannot look
at the value: `if rows:` is refused, with what to write instead.
"""

from __future__ import annotations

import linecache
import re

from mulligan.flows.context import RECORDER, call_site, refuse
from mulligan.flows.literals import literal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")
    # A step, and how it must have ended: the `on` of a need.
    Reads = dict[str, str]

# How strongly the operators of CEL bind.
TERNARY, OR, AND, RELATION, SUM, PRODUCT, UNARY, MEMBER = range(1, 9)

# The ways in which a step that is read may have ended, from the strictest to the loosest.
SUCCESS, OPTIONAL, ENDED = "success", "success_or_skipped", "always"
_STRICTNESS = (SUCCESS, OPTIONAL, ENDED)

# How the text begins that `repr` gives.
SHOWN = "<reference to "
# Words that CEL does not allow as the name of a field.
_RESERVED = frozenset(
    "as break const continue else false for function if import in let loop namespace null package return true var void "
    "while".split()
)
# Python's methods of texts and dicts, as CEL writes them. `{0}` is the value, `{1}` the first argument.
_METHODS = {
    ("startswith", 1): "{0}.startsWith({1})",
    ("endswith", 1): "{0}.endsWith({1})",
    ("lower", 0): "{0}.lowerAscii()",
    ("upper", 0): "{0}.upperAscii()",
    ("strip", 0): "{0}.trim()",
    ("find", 1): "{0}.indexOf({1})",
    ("rfind", 1): "{0}.lastIndexOf({1})",
}
_SHOWN_METHODS = "startswith, endswith, contains, matches, lower, upper, strip, replace, split, join, find and get"
_CEL_METHODS = frozenset(
    "contains matches replace split join startsWith endsWith lowerAscii upperAscii trim indexOf lastIndexOf substring "
    "charAt getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds "
    "getMilliseconds".split()
)


def _operator(make: Callable[[Any, Any], Reference]) -> Any:
    """The method of an operator, from what it makes of its left and its right side."""
    return lambda self, other: make(self, other)


def _operators(make: Callable[[Any, Any], Reference]) -> tuple[Any, Any]:
    """The same with the reference on the left, and on the right."""
    return _operator(make), lambda self, other: make(other, self)


def _refused(message: str, hint: str) -> Any:
    """The method for what needs the value itself."""
    return lambda self, *_: _refuse(self, message, hint)


class Reference:
    """Stands for a value of the run while the flow is built: `rows["a"]`, `rows.a`, `rows > 3`, `f"{rows}"`.

    Its attributes are fields of the value, so it has none of its own.
    """

    __slots__ = (
        "_mulligan_flow",
        "_mulligan_level",
        "_mulligan_parent",
        "_mulligan_reads",
        "_mulligan_shape",
        "_mulligan_source",
    )

    # The recorder of the flow that made it; None outside of one.
    _mulligan_flow: Any
    _mulligan_source: str
    _mulligan_reads: Reads
    _mulligan_level: int
    _mulligan_parent: tuple[Reference, str] | None
    # The number of elements, if the value is a tuple.
    _mulligan_shape: int | None

    def __init__(
        self,
        source: str,
        reads: Reads,
        level: int = MEMBER,
        parent: tuple[Reference, str] | None = None,
        shape: int | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "_mulligan_flow", RECORDER.get())
        put(self, "_mulligan_source", source)
        put(self, "_mulligan_reads", reads)
        put(self, "_mulligan_level", level)
        put(self, "_mulligan_parent", parent)
        put(self, "_mulligan_shape", shape)

    def __repr__(self) -> str:
        return f"{SHOWN}{self._mulligan_source}>"

    def __str__(self) -> str:
        text = f"${{{source_of(self)}}}"
        recorder = RECORDER.get()
        if recorder is not None:
            recorder.formatted[text] = self._mulligan_reads
        return text

    def __format__(self, spec: str) -> str:
        if spec:
            hint = "leave the format out, or format the value in a step"
            refuse("reference", f"'{self._mulligan_source}' has no value yet, so ':{spec}' cannot format it", hint=hint)
        return str(self)

    def __hash__(self) -> int:
        # Otherwise `x in {"a", "b"}` and `prices.get(x, 0)` would find nothing, without a word.
        hint = "make or read the mapping in a step; for several references use a list"
        _refuse(self, "Python cannot use it as a key, or look it up", hint)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, _: object) -> Any:
        return self

    # Fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f'a reference has no attribute {name}; for a field of its value write ["{name}"]')
        return Reference(_member(self, name), self._mulligan_reads, parent=(self, name))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            _refuse(self, "a slice needs the value", "take the part in a step")
        if isinstance(key, str) and not isinstance(key, Reference):
            return Reference(_member(self, key), self._mulligan_reads)
        if isinstance(key, int) and key < 0:
            _refuse(self, "an index from the end needs the length", f"write rows[mulligan.size(rows) - {-key}]")
        parts = _operand(self, MEMBER), _operand(key, TERNARY)
        return Reference(f"{parts[0][0]}[{parts[1][0]}]", _merged(*parts))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._mulligan_parent is None:
            _refuse(self, "it is a value, not a function", "call a step")
        value, method = self._mulligan_parent
        if method == "get" and len(arguments) in (1, 2) and not named:
            key = arguments[0]
            default = arguments[1] if len(arguments) > 1 else None
            return conditional(contains(value, key), value[key], default)
        written = _METHODS.get((method, len(arguments)))
        if named or (written is None and method not in _CEL_METHODS):
            _refuse(
                value, f"expressions have no method '{method}'", f"compute it in a step; there are {_SHOWN_METHODS}"
            )
        parts = [_operand(value, MEMBER), *(_operand(argument, TERNARY) for argument in arguments)]
        template = written or f"{{0}}.{method}({', '.join(f'{{{i}}}' for i in range(1, len(parts)))})"
        return Reference(template.format(*(text for text, _ in parts)), _merged(*parts))

    # Operators

    __eq__ = _operator(lambda left, right: _binary(left, "==", right, RELATION))
    __ne__ = _operator(lambda left, right: _binary(left, "!=", right, RELATION))
    __lt__ = _operator(lambda left, right: _binary(left, "<", right, RELATION))
    __le__ = _operator(lambda left, right: _binary(left, "<=", right, RELATION))
    __gt__ = _operator(lambda left, right: _binary(left, ">", right, RELATION))
    __ge__ = _operator(lambda left, right: _binary(left, ">=", right, RELATION))
    __add__, __radd__ = _operators(lambda left, right: _arithmetic(left, "+", right, SUM))
    __sub__, __rsub__ = _operators(lambda left, right: _arithmetic(left, "-", right, SUM))
    __mul__, __rmul__ = _operators(lambda left, right: _arithmetic(left, "*", right, PRODUCT))
    __truediv__, __rtruediv__ = _operators(lambda left, right: _binary(_double(left), "/", _double(right), PRODUCT))
    __mod__, __rmod__ = _operators(lambda left, right: _remainder(left, right))
    __and__, __rand__ = _operators(lambda left, right: _logical(left, "&&", right, AND, "&"))
    __or__, __ror__ = _operators(lambda left, right: _logical(left, "||", right, OR, "|"))

    def __invert__(self) -> Any:
        return Reference(f"!{_enclosed(self, UNARY)}", self._mulligan_reads, UNARY)

    def __neg__(self) -> Any:
        return Reference(f"-{_enclosed(self, UNARY)}", self._mulligan_reads, UNARY)

    # What needs the value itself

    def __bool__(self) -> bool:
        site = call_site()
        line = linecache.getline(site.file, site.line).strip()
        if re.search(r"(?<!not) in ", line) and not line.startswith("for "):
            hint = "write mulligan.contains(values, x) for 'x in values'"
        elif re.search(r"\b(and|or|not)\b", line) or re.search(r"[<>]=?[^<>]+[<>]=?", line):
            hint = "write & for 'and', | for 'or', ~ for 'not', and put each comparison in parentheses"
        elif line.startswith("while"):
            hint = "a loop is a route back to an earlier step: mulligan.route(improve, review, when=…)"
        else:
            hint = "write step.options(when=condition)(…), or mulligan.branch(condition, lambda: …, lambda: …)"
        _refuse(self, "Python cannot decide on it", hint)

    def __iter__(self) -> Iterator[Any]:
        if self._mulligan_shape is not None:
            return iter([self[index] for index in range(self._mulligan_shape)])
        hint = "write step.map(rows) for one run of a step per item, or rows[0] for one of them"
        _refuse(self, "Python cannot iterate over it", hint)

    __len__ = _refused("Python cannot count it", "write mulligan.size(rows)")
    __contains__ = _refused("Python cannot search it", "write mulligan.contains(rows, item)")
    __setitem__ = __delitem__ = __setattr__ = _refused("it cannot be changed", "change the value in a step")
    __await__ = _refused("it cannot be awaited", "leave 'await' out: steps may be async, and a flow only names them")
    __int__ = _refused("Python cannot convert it", 'write mulligan.expression(f"int({x})") or convert it in a step')
    __float__ = _refused("Python cannot convert it", "convert it in a step")
    __index__ = _refused("Python cannot count with it", "let a step return it: a step may return list(range(count))")

    _no_operator = _refused("expressions have no such operator", "compute it in a step")
    __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _no_operator
    __lshift__ = __rshift__ = __xor__ = __rxor__ = _no_operator

    _no_function = _refused("Python cannot compute with it", "compute it in a step")
    __abs__ = __round__ = __trunc__ = __floor__ = __ceil__ = __reversed__ = __bytes__ = __complex__ = _no_function
    __enter__ = __exit__ = __next__ = _no_function


def _refuse(reference: Reference, message: str, hint: str) -> NoReturn:
    source = reference._mulligan_source
    shown = source if len(source) <= 60 else source[:59] + "…"
    refuse("reference", f"'{shown}' has no value while the flow is built: {message}", hint=hint)


def source_of(reference: Reference) -> str:
    """The expression. A reference that another flow has made is refused: it would name a step of this one."""
    here, made_in = RECORDER.get(), reference._mulligan_flow
    if here is not made_in and here is not None and made_in is not None:
        hint = "give it to this flow as an argument, or let the step be called here"
        refuse("reference", f"'{reference._mulligan_source}' belongs to the flow '{made_in.name}'", hint=hint)
    return reference._mulligan_source


def reads_of(reference: Reference) -> Reads:
    """The steps that the reference reads, each with how it must have ended."""
    return reference._mulligan_reads


def merge(reads: Reads, more: Reads) -> None:
    """Add steps to those that are read. For one that is read twice, the stricter way to end counts."""
    for step, on in more.items():
        reads[step] = min(reads[step], on, key=_STRICTNESS.index) if step in reads else on


def _merged(*parts: tuple[str, Reads]) -> Reads:
    """The steps that the operands of an expression read."""
    found: Reads = {}
    for _, reads in parts:
        merge(found, reads)
    return found


def _member(value: Reference, name: str) -> str:
    before = _enclosed(value, MEMBER)
    if _is_field(name):
        return f"{before}.{name}"
    return f"{before}[{literal(name)}]"


def _enclosed(value: Reference, level: int) -> str:
    """The source, in parentheses if it binds less strongly than `level`."""
    source = source_of(value)
    return source if value._mulligan_level >= level else f"({source})"


def _operand(value: object, level: int) -> tuple[str, Reads]:
    if isinstance(value, Reference):
        return _enclosed(value, level), value._mulligan_reads
    if isinstance(value, str) and "${" in value:
        hint = "join texts with +, or put the comparison in a step"
        refuse("reference", "a text with a reference in it cannot be part of an expression", hint=hint)
    return literal(value), {}


def _double(value: object) -> Any:
    """The operand of `/`, which divides numbers exactly, as Python does."""
    if isinstance(value, Reference):
        return Reference(f"double({source_of(value)})", value._mulligan_reads)
    return float(value) if isinstance(value, int) else value


def _binary(left: object, operator: str, right: object, level: int) -> Reference:
    parts = _operand(left, level), _operand(right, level + 1)
    return Reference(f"{parts[0][0]} {operator} {parts[1][0]}", _merged(*parts), level)


def _arithmetic(left: object, operator: str, right: object, level: int) -> Reference:
    """`left + right` and so on. Beside a float, a whole number is one too, as in Python."""
    if type(left) is float or type(right) is float:
        left, right = _double(left), _double(right)
    return _binary(left, operator, right, level)


def _remainder(left: object, right: object) -> Reference:
    """`left % right` with the sign of `right`, as in Python; in CEL it has the sign of `left`."""
    remainder = _binary(left, "%", right, PRODUCT)
    return _binary(_binary(remainder, "+", right, SUM), "%", right, PRODUCT)


def _logical(left: object, operator: str, right: object, level: int, written: str) -> Reference:
    for side in (left, right):
        if not isinstance(side, Reference | bool):
            hint = f"put each comparison in parentheses: (a > 1) {written} (b < 2)"
            refuse("reference", f"'{written}' joins conditions, and {side!r} is none", hint=hint)
    return _binary(left, operator, right, level)


def conditional(condition: Any, value: Any, otherwise: Any) -> Reference:
    """`condition ? value : otherwise`."""
    parts = _operand(condition, OR), _operand(value, OR), _operand(otherwise, TERNARY)
    return Reference(f"{parts[0][0]} ? {parts[1][0]} : {parts[2][0]}", _merged(*parts), TERNARY)


# Functions for what Python's own would need a value


def size(value: Any) -> int:
    """The number of items of a list, of entries of a mapping, of characters of a text: `len` for references."""
    source, reads = _operand(value, TERNARY)
    return Reference(f"size({source})", reads)  # type: ignore[return-value]


def contains(values: Any, item: Any) -> bool:
    """Whether `item` is in a list, or a key of a mapping: `item in values` for references."""
    return _binary(item, "in", values, RELATION)  # type: ignore[return-value]


def expression(source: str) -> Any:
    """A reference made from an expression in CEL: `expression("run.id")`, `expression("env.HOME")`.

    A reference in an f-string may be a part of it: `expression(f"int({text})")`.
    """
    recorder = RECORDER.get()
    reads: Reads = {}
    text = source
    for formatted, read in sorted((recorder.formatted if recorder else {}).items(), key=lambda one: -len(one[0])):
        if formatted in text:
            merge(reads, read)
            text = text.replace(formatted, formatted[2:-1])
    for step in steps_in(text):
        reads.setdefault(step, SUCCESS)
    return Reference(text, reads, TERNARY)


def optional(value: T) -> T:
    """The same value, or None if its step was skipped. The step that reads it runs in both cases."""
    return _with_need(value, OPTIONAL, "optional")  # type: ignore[no-any-return]


def ended(value: T) -> T:
    """The same value, or None if its step was skipped or failed. The step that reads it runs in all cases."""
    return _with_need(value, ENDED, "ended")  # type: ignore[no-any-return]


def _with_need(value: Any, on: str, name: str) -> Any:
    if not isinstance(value, Reference):
        refuse("reference", f"mulligan.{name} takes what a step returned, and this is {value!r}", word=name)
    return Reference(source_of(value), dict.fromkeys(value._mulligan_reads, on), value._mulligan_level)


# Patterns are compiled when they are used: a step that imports its module uses none.
_STEPS = r"""(?<![\w.])steps(?:\.([A-Za-z_]\w*)|\[\s*["']([^"'\]]+)["']\s*\])"""


def steps_in(text: str) -> Iterator[str]:
    """The names of the steps that an expression reads."""
    return (found[1] or found[2] for found in re.finditer(_STEPS, text)) if "steps" in text else iter(())


def step_path(name: str) -> str:
    """`steps.NAME`, as an expression writes it."""
    return f"steps.{name}" if _is_field(name) else f"steps[{literal(name)}]"


def _is_field(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name not in _RESERVED


class Outcome:
    """How a step ended: `outcome(deployed).status == "failed"`. A step that reads this runs in all cases.

    `status` is `completed`, `failed` or `skipped`; `failure` is its last failure, or None; `visits` and `attempts` are
    numbers; `recovered` and `handled` are true or false.
    """

    if TYPE_CHECKING:
        status: str
        failure: Any
        visits: int
        attempts: int
        recovered: bool
        handled: bool
        warnings: list[Any]


_OUTPUT = r"(steps(?:\.\w+|\[\"[^\"]+\"\]))\.output"


def outcome(value: Any) -> Outcome:
    """How the step ended that returned `value`. See `Outcome`."""
    whole = re.match(_OUTPUT, source_of(value)) if isinstance(value, Reference) else None
    if whole is None:
        refuse("reference", f"mulligan.outcome takes what a step returned, and this is {value!r}", word="outcome")
    return Reference(whole[1], dict.fromkeys(reads_of(value), ENDED))  # type: ignore[return-value]
