"""The tree of a file: every key and value with its position.

Lines and columns count from 0 here, as in the parser; a `Problem` counts from 1.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from mulligan.core.model.artifacts import KEY as ARTIFACT
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.errors import WARNING, Problem

PROBLEMS_MAX = 100
# Shown in place of hidden values.
HIDDEN = "•••"

# Line breaks of YAML. `str.splitlines` knows more, which would shift the following lines.
_LINE_BREAK = lazy_regex("\r\n|[\n\r\x85\u2028\u2029]")


class Scalar(msgspec.Struct, eq=False, gc=False):
    """One value. `text` is as written, `value` as YAML 1.2 reads it."""

    value: Any
    text: str
    style: str
    line: int
    column: int
    end_column: int

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)


class Sequence(msgspec.Struct, eq=False):
    line: int
    column: int
    items: list[Node] = []


class Mapping(msgspec.Struct, eq=False):
    """Keys in the order of the file, each with its position."""

    line: int
    column: int
    entries: dict[str, tuple[Scalar, Node]] = {}

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry[1] if entry else None

    def key(self, key: str) -> Scalar:
        return self.entries[key][0]

    def items(self) -> list[tuple[Scalar, Node]]:
        return list(self.entries.values())


Node: TypeAlias = "Scalar | Sequence | Mapping"


class Refusal(Exception):
    """A reader stops here; its caller notes the problem and continues."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class TooManyProblems(Exception):
    """A file has so many problems that reading stops."""


class ProblemCollector:
    """`with source.noting:` notes a refusal and continues after the block, so that one reading finds all problems."""

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
        """Note a problem once: a reader may stop at one that is already noted."""
        if refusal.problem in self.problems:
            return
        self.problems.append(refusal.problem)
        if len(self.problems) >= PROBLEMS_MAX:
            raise TooManyProblems


# The password in a URL, even a malformed one: `scheme://user:PASSWORD@host`, `password=PASSWORD`.
_PASSWORD = lazy_regex(r"""(?<=:)[^\s:@'"${}]+(?=@[\w\[.-])|(?<=\bpassword=)[^\s&'"${}]+""", re.IGNORECASE)


def _mask_passwords(line: str) -> str:
    """The line with passwords replaced by as many `*`, so that columns stay the same."""
    return _PASSWORD.sub(lambda found: "*" * len(found[0]), line) if "@" in line or "password=" in line else line


# Set by whoever wants to know which other files are named: the file that names each, and its name.
NAMED_FILES: ContextVar[list[tuple[str, str]] | None] = ContextVar("mulligan_named_files", default=None)


class Source:
    """A file's text and the problems found in it so far."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        # The system whose file this is; "" for our own.
        self.origin = ""
        self.problems: list[Problem] = []
        self.noting = ProblemCollector(self.problems)
        # A dict keeps them unique: a policy is read at each use, but its warnings are shown once.
        self.warnings: dict[Problem, None] = {}
        self._lines: list[str] | None = None
        # The names of steps that were refused; "" for one whose name is not known.
        self._unread: set[str] = set()
        # Files that became part of this one: the index in `lines` of the first line of each, and its path.
        self._included: list[tuple[int, str]] = []
        # Whether it is read without the files that it names: a text that somebody sent may not read ours.
        self.is_alone = False

    def refuse_other_file(self, file: str, node: Node) -> None:
        """Refuse that the text names another workflow file, if it has to be whole by itself."""
        if (named := NAMED_FILES.get()) is not None:
            named.append((self.file, file))
        if self.is_alone:
            message = f"it names the file '{file}', and a text that is sent alone cannot include other files"
            hint = "publish it with them, from the folder of its project: mulligan publish FILE"
            raise self.refuse("include", message, node, hint=hint)

    def include(self, other: Source) -> int:
        """Append the lines of another file, whose nodes become part of this tree.

        Returns by how much the lines of its nodes must be shifted. Problems at such lines name the other file.
        """
        start = len(self.lines)
        self._included.append((start, other.file))
        self.lines.extend(other.lines)
        return start

    def _place(self, line: int) -> tuple[str, int]:
        """The file of a line, and the index of the line in that file."""
        for start, file in reversed(self._included):
            if line >= start:
                return file, line - start
        return self.file, line

    @property
    def lines(self) -> list[str]:
        if self._lines is None:
            is_plain = self.text.isascii() and "\r" not in self.text
            self._lines = self.text.split("\n") if is_plain else _LINE_BREAK.split(self.text)
        return self._lines

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    def number(self, node: Node) -> int:
        """The line of a node, counted from 1."""
        return self._place(node.line)[1] + 1

    def refuse(self, code: str, message: str, node: Node, *, hint: str = "") -> Refusal:
        """A refusal that points at the whole of `node`."""
        return self.refuse_at(code, message, node.line, node.column, self.width(node), hint=hint)

    def refuse_in(
        self, code: str, message: str, scalar: Scalar, offset: int, length: int, *, hint: str = ""
    ) -> Refusal:
        """A refusal that points into the text of `scalar`."""
        position = self.position(scalar, offset)
        if position is None:
            return self.refuse(code, message, scalar, hint=hint)
        return self.refuse_at(code, message, *position, length, hint=hint)

    def refuse_at(self, code: str, message: str, line: int, column: int, length: int = 1, *, hint: str = "") -> Refusal:
        shown = _mask_passwords(self.line(line))
        length = max(1, min(length, len(shown) - column))
        file, number = self._place(line)
        return Refusal(Problem(f"language.{code}", message, file, number + 1, column + 1, length, shown, hint))

    def note_unread(self, node: Node, key: str) -> None:
        """Remember an entry that was refused by the name under its `key`: others may refer to it."""
        name = node.get(key) if isinstance(node, Mapping) else None
        self._unread.add(name.text if isinstance(name, Scalar) and isinstance(name.value, str) else "")

    def may_be_unread(self, name: str) -> bool:
        """Whether this may be the name of an entry that was refused: then it is no mistake to refer to it."""
        return bool(self.problems) and not self._unread.isdisjoint((name, ""))

    def refuse_unknown(self, message: str, name: str, node: Node, *, hint: str = "") -> Refusal:
        """A refusal of the name of a step that does not exist.

        If the step was itself refused, this is a refusal that is noted already, and is not noted twice.
        """
        if self.may_be_unread(name):
            return Refusal(self.problems[0])
        return self.refuse("unknown_step", message, node, hint=hint)

    def hide(self, scalar: Scalar) -> None:
        """Forget the value of a scalar, so that no message or shown line contains it. Its position stays the same."""
        if scalar.value is None:
            return
        scalar.value = scalar.text = HIDDEN
        if scalar.line < len(self.lines):
            shown = self.lines[scalar.line]
            # A multi-line value hides the rest of its first line; the other lines are never shown.
            end = scalar.end_column if scalar.end_column > scalar.column else len(shown)
            hidden = HIDDEN[0] * (end - scalar.column)
            self.lines[scalar.line] = shown[: scalar.column] + hidden + shown[end:]

    def note(self, refusal: Refusal) -> None:
        self.noting.note(refusal)

    def warn(self, code: str, message: str, node: Node, *, hint: str = "") -> None:
        """Note what is allowed but most likely a mistake."""
        self.warn_as(self.refuse(code, message, node, hint=hint))

    def warn_in(self, code: str, message: str, scalar: Scalar, offset: int, length: int, *, hint: str = "") -> None:
        """A warning that points into the text of `scalar`."""
        self.warn_as(self.refuse_in(code, message, scalar, offset, length, hint=hint))

    def warn_as(self, refusal: Refusal) -> None:
        """A warning in place of a refusal."""
        problem = refusal.problem
        self.warnings[msgspec.structs.replace(problem, code=WARNING + problem.code)] = None

    def width(self, node: Node) -> int:
        """How many characters to underline: a whole single-line scalar, otherwise the first character."""
        if isinstance(node, Scalar) and node.style not in ("|", ">"):
            return max(1, node.end_column - node.column)
        return 1

    def position(self, scalar: Scalar, offset: int) -> tuple[int, int] | None:
        """The line and column of a character of the scalar's text; None if the text was not written literally."""
        if scalar.style == "|":
            return self._position_in_block(scalar, offset)
        quotes = 1 if scalar.style in ("'", '"') else 0
        if scalar.end_column - scalar.column - 2 * quotes == len(scalar.text):
            return scalar.line, scalar.column + quotes + offset
        return None

    def _position_in_block(self, scalar: Scalar, offset: int) -> tuple[int, int]:
        before = scalar.text[:offset]
        number = scalar.line + 1 + before.count("\n")
        start = before.rfind("\n") + 1
        content = scalar.text[start:].partition("\n")[0]
        # A block line is the end of the file's line; the rest is indentation.
        return number, max(0, len(self.line(number)) - len(content)) + offset - start


def describe(node: Node) -> str:
    """A value as an error message names it."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.value is None:
        return "empty"
    return f"'{shorten(node.text)}'" if node.text else "an empty text"


def shorten(text: str) -> str:
    """The start of a value, on one line."""
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
    """Refuse infinity and NaN, which JSON does not have, and references to artifacts, which only facts may contain."""
    if isinstance(node, Scalar):
        if isinstance(node.value, float) and not abs(node.value) < float("inf"):
            raise source.refuse("number", f"'{shorten(node.text)}' is a number that JSON does not have", node)
        return
    if isinstance(node, Mapping) and [*node.entries] == [ARTIFACT]:
        message = f"'{ARTIFACT}' cannot be the only key of a mapping: this is how artifacts are referenced"
        raise source.refuse("name", message, node.key(ARTIFACT))
    for child in node.items if isinstance(node, Sequence) else [value for _, value in node.items()]:
        refuse_not_json(child, source)
