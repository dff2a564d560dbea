"""What a file says, with the place of every key and value: the tree that the readers walk.

Lines and columns count from 0 here, as the parser's do; a `Problem` counts from 1.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from mulligan.core.model.artifacts import KEY as ARTIFACT
from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.errors import WARNING, Problem

PROBLEMS_MAX = 100
# What is shown for what nobody may see.
HIDDEN = "•••"

# What YAML calls a line break; `str.splitlines` knows more of them, which would shift every line after.
_LINE_BREAK = lazy_regex("\r\n|[\n\r\x85\u2028\u2029]")


class Scalar:
    """One value. `text` is what was written, `value` what YAML 1.2 makes of it."""

    __slots__ = ("column", "end_column", "line", "style", "text", "value")

    def __init__(self, value: Any, text: str, style: str, line: int, column: int, end_column: int) -> None:
        self.value = value
        self.text = text
        self.style = style
        self.line = line
        self.column = column
        self.end_column = end_column

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)


class Sequence:
    __slots__ = ("column", "items", "line")

    def __init__(self, line: int, column: int) -> None:
        self.items: list[Node] = []
        self.line = line
        self.column = column


class Mapping:
    """Keys in the order of the file, each with its own place."""

    __slots__ = ("column", "entries", "line")

    def __init__(self, line: int, column: int) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.line = line
        self.column = column

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry[1] if entry else None

    def key(self, key: str) -> Scalar:
        return self.entries[key][0]

    def items(self) -> list[tuple[Scalar, Node]]:
        return list(self.entries.values())


Node: TypeAlias = "Scalar | Sequence | Mapping"


class Refusal(Exception):
    """A reader stops at this place; whoever holds the next one up notes the problem and goes on."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Enough(Exception):
    """So much is wrong with a file that nobody reads on."""


class Noting:
    """`with source.noting:` notes a refusal inside and goes on after it, so that one reading finds all problems."""

    __slots__ = ("problems",)

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Refusal):
            self.note(error)
            return True
        return False

    def note(self, refusal: Refusal) -> None:
        """Note a problem, once: a reader may stop at one that is noted already."""
        if refusal.problem in self.problems:
            return
        self.problems.append(refusal.problem)
        if len(self.problems) >= PROBLEMS_MAX:
            raise Enough


# The password of an address, also of one that is written wrong: `scheme://user:PASSWORD@host`, `password=PASSWORD`.
_PASSWORD = lazy_regex(r"""(?<=:)[^\s:@'"${}]+(?=@[\w\[.-])|(?<=\bpassword=)[^\s&'"${}]+""", re.IGNORECASE)


def _without_passwords(line: str) -> str:
    """A line as it is shown: everything else stays in its column."""
    return _PASSWORD.sub(lambda found: "*" * len(found[0]), line) if "@" in line or "password=" in line else line


class Source:
    """A file's text and the problems found in it so far."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        # The system whose file this is; "" where it is ours.
        self.origin = ""
        self.problems: list[Problem] = []
        self.noting = Noting(self.problems)
        # As keys: a policy is read wherever it is used, and what is said about it is said once.
        self.warnings: dict[Problem, None] = {}
        self._lines: list[str] | None = None

    @property
    def lines(self) -> list[str]:
        if self._lines is None:
            self._lines = _LINE_BREAK.split(self.text)
        return self._lines

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    def number(self, node: Node) -> int:
        """The line of a node, as people count."""
        return node.line + 1

    def refuse(self, code: str, message: str, node: Node, *, hint: str = "") -> Refusal:
        """A refusal that points at the whole of `node`."""
        return self.refuse_at(code, message, node.line, node.column, self.width(node), hint=hint)

    def refuse_in(
        self, code: str, message: str, scalar: Scalar, offset: int, length: int, *, hint: str = ""
    ) -> Refusal:
        """A refusal that points into the text of `scalar`."""
        place = self.place(scalar, offset)
        if place is None:
            return self.refuse(code, message, scalar, hint=hint)
        return self.refuse_at(code, message, *place, length, hint=hint)

    def refuse_at(self, code: str, message: str, line: int, column: int, length: int = 1, *, hint: str = "") -> Refusal:
        shown = _without_passwords(self.line(line))
        length = max(1, min(length, len(shown) - column))
        return Refusal(Problem(f"language.{code}", message, self.file, line + 1, column + 1, length, shown, hint))

    def hide(self, scalar: Scalar) -> None:
        """Forget what a scalar says: no message and no line that is shown has it. Its place stays the same."""
        if scalar.value is None:
            return
        scalar.value = scalar.text = HIDDEN
        if scalar.line < len(self.lines):
            shown = self.lines[scalar.line]
            # Of what goes on in further lines, which nobody is shown, all of the first.
            end = scalar.end_column if scalar.end_column > scalar.column else len(shown)
            hidden = HIDDEN[0] * (end - scalar.column)
            self.lines[scalar.line] = shown[: scalar.column] + hidden + shown[end:]

    def note(self, refusal: Refusal) -> None:
        self.noting.note(refusal)

    def warn(self, code: str, message: str, node: Node, *, hint: str = "") -> None:
        """Note what is lawful and most likely a slip."""
        self._warn(self.refuse(code, message, node, hint=hint).problem)

    def warn_in(self, code: str, message: str, scalar: Scalar, offset: int, length: int, *, hint: str = "") -> None:
        """A warning that points into the text of `scalar`."""
        self._warn(self.refuse_in(code, message, scalar, offset, length, hint=hint).problem)

    def _warn(self, problem: Problem) -> None:
        self.warnings[msgspec.structs.replace(problem, code=WARNING + problem.code)] = None

    def width(self, node: Node) -> int:
        """How many characters to underline: a scalar of one line whole, of anything longer its first one."""
        if isinstance(node, Scalar) and node.style not in ("|", ">"):
            return max(1, node.end_column - node.column)
        return 1

    def place(self, scalar: Scalar, offset: int) -> tuple[int, int] | None:
        """Where the character at `offset` of the scalar's text stands in the file, if the text was written as it is."""
        if scalar.style == "|":
            return self._place_in_block(scalar, offset)
        quotes = 1 if scalar.style in ("'", '"') else 0
        if scalar.end_column - scalar.column - 2 * quotes == len(scalar.text):
            return scalar.line, scalar.column + quotes + offset
        return None

    def _place_in_block(self, scalar: Scalar, offset: int) -> tuple[int, int]:
        before = scalar.text[:offset]
        number = scalar.line + 1 + before.count("\n")
        start = before.rfind("\n") + 1
        content = scalar.text[start:].partition("\n")[0]
        # A line of a block is the end of the file's line: the rest of that is indentation.
        return number, max(0, len(self.line(number)) - len(content)) + offset - start


def describe(node: Node) -> str:
    """What a value is, in the words of an error message."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.value is None:
        return "empty"
    return f"'{shorten(node.text)}'" if node.text else "an empty text"


def shorten(text: str) -> str:
    """Enough of a value to recognise it, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 40 else flat[:39] + "…"


def plain(node: Node) -> Any:
    """The JSON value of a node."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, (_, value) in node.entries.items()}


def refuse_not_json(node: Node, source: Source) -> None:
    """Infinity and "not a number" are YAML; no JSON reader takes them. And nothing but a fact refers to an artifact."""
    if isinstance(node, Scalar):
        if isinstance(node.value, float) and not abs(node.value) < float("inf"):
            raise source.refuse("number", f"'{shorten(node.text)}' is a number that JSON does not have", node)
        return
    if isinstance(node, Mapping) and [*node.entries] == [ARTIFACT]:
        message = f"'{ARTIFACT}' cannot be the only key of a mapping: so artifacts are referred to"
        raise source.refuse("name", message, node.key(ARTIFACT))
    for child in node.items if isinstance(node, Sequence) else [value for _, value in node.items()]:
        refuse_not_json(child, source)
