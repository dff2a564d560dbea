"""A small lexer of bash: for every `${…}` of ours, how it is quoted there and whether it is safe there.

It follows bash as far as that question needs: words, quotes, `$(…)`, `$((…))`, `${…}`, here-documents, `[[ … ]]`,
`case`, arrays, comments. What it does not understand it passes over; it never changes text. A hole is judged where it
stands: by the quotes around it, by the word it is part of, by the command whose argument it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language import shell_safety as dangers
from mulligan.language.shell_placeholders import Names, Ours, ShellRefused, find
from mulligan.language.shell_safety import Danger

DEPTH_MAX = 64
_PLAIN = lazy_regex(r"[^\s;&|<>()\[\\'\"`$]+")
_PLAIN_WORD = lazy_regex(rf"{_PLAIN.pattern}(?=[\s;&|<>)]|$)")
_BLANK = lazy_regex(r"(?:[ \t\r]+|\\\n|#[^\n]*)+")
_IN_QUOTES = lazy_regex(r'[^"\\`$]+')
_HOLE = lazy_regex(r"\$?\$\{")
_REDIRECTION = lazy_regex(r"&>>?|<<<|<<-|<<|<>|>>|>\||[<>]&|[<>]")
_PARAMETER = lazy_regex(r"[#!]?(?:[A-Za-z_]\w*|\d+|[-@*?$!#])?")
_DELIMITER = lazy_regex(r"""(?:'[^'\n]*'|"[^"\n]*"|\\.|[^\s;&|<>()'"\\])+""")
_NUMBER_TESTS = frozenset("-eq -ne -lt -le -gt -ge".split())
# After these words a command begins anew.
_OPENERS = frozenset("if then else elif do while until ! { } time coproc fi done".split())
# Outside quotes; within double quotes; in the body of a here-document; in a pattern within double quotes; within single
# quotes, where the shell expands nothing.
Quoting = Literal["bare", "quoted", "document", "pattern", "single"]


class Spot(msgspec.Struct):
    """A hole of ours, and how it stands there: its quotes, the first words of its command, its danger.

    `close` is where the `}` stands that ends it, where an operator of the shell's is kept. `is_command` says that the
    word it is part of names the program that is run.
    """

    ours: Ours
    quoting: Quoting
    words: Sequence[str]
    danger: Danger | None = None
    close: int | None = None
    is_command: bool = False


class Scan(NamedTuple):
    """`escapes` are where a `$` has to go: `$${` where the shell expands nothing."""

    spots: list[Spot]
    escapes: list[int]


class Place(NamedTuple):
    """Where the lexer is: how text is quoted there, the words of the command so far, where the current one began."""

    quoting: Quoting
    danger: Danger | None = None
    words: Sequence[str] = ()
    start: int = 0
    # Whether the word may be the name of a command: an element of an array is none.
    is_of_command: bool = False


class Document(NamedTuple):
    """A here-document whose body is still to come."""

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    danger: Danger | None


def scan(text: str, names: Names) -> Scan:
    """The holes of ours in `text`, in order, each with its danger if it has one."""
    scanner = _Scanner(text, names)
    scanner.commands("")
    scanner.end_line()
    scanner.spots.sort(key=lambda spot: spot.ours.offset)
    return Scan(scanner.spots, scanner.escapes)


class _Scanner:
    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.spots: list[Spot] = []
        self.escapes: list[int] = []
        self._at = 0
        self._depth = 0
        self._outer: Danger | None = None
        self._is_run = False
        self._documents: list[Document] = []
        # Of the line, and of the commands within it that have ended.
        self._line_words: list[str] = []
        self._inner_words: list[str] = []
        self._printed: list[Spot] = []
        self._integers = dangers.integers(text)

    # Commands and words

    def commands(self, closer: str) -> None:
        """Read commands up to `closer`, which is `)` or, for the whole text, nothing."""
        self._refuse_too_deep()
        self._depth += 1
        words: list[str] = []
        cases: list[str] = []
        while self._at < len(self.text):
            char = self.text[self._at]
            if char == ")" and closer and "pattern" not in cases[-1:]:
                self._at += 1
                break
            if self._skip_blank(char):
                continue
            if char in ";&|)\n" and not self.text.startswith("&>", self._at):
                self._separator(char, cases)
                words = []
            elif char in "<>&":
                self._redirection(words)
            elif char == "(":
                self._parenthesis(words, cases)
                words = []
            else:
                self._word(words, is_of_command="pattern" not in cases[-1:])
                self._keyword(words, cases)
        self._depth -= 1

    def _within(self, danger: Danger | None = None, *, is_run: bool = False) -> None:
        """Read commands up to a `)`, whose words are judged with the line around. What they print may be run itself."""
        words, printed, inner = self._line_words, self._printed, self._inner_words
        self._line_words, self._printed, self._inner_words = [], [], []
        outer, self._outer, self._is_run = (self._outer, self._is_run), danger or self._outer, self._is_run or is_run
        self.commands(")")
        self._outer, self._is_run = outer
        inner += [*self._inner_words, *self._line_words, ";"]
        printed += self._printed
        self._line_words, self._printed, self._inner_words = words, printed, inner

    def _refuse_too_deep(self) -> None:
        if self._depth > DEPTH_MAX:
            raise ShellRefused(f"the shell text is nested more than {DEPTH_MAX} deep", self._at, 1)

    def _skip_blank(self, char: str) -> bool:
        """Pass over blanks, continued lines and comments, at the beginning of a word."""
        blank = _BLANK.match(self.text, self._at) if char in " \t\r\\#" else None
        if blank is None:
            return False
        self._at = blank.end()
        return True

    def _separator(self, char: str, cases: list[str]) -> None:
        self._at += 1
        self._line_words.append(";")
        if char == "\n":
            self._read_documents()
        elif char == ")" and cases:
            cases[-1] = "body"
        elif char == ";" and self.text.startswith((";", "&"), self._at) and cases:
            self._at += 2 if self.text.startswith(";&", self._at) else 1
            cases[-1] = "pattern"

    def _parenthesis(self, words: list[str], cases: list[str]) -> None:
        """A subshell, `((…))`, the `()` of a function, or the `(` before a pattern of `case`."""
        if self.text.startswith("((", self._at) and words in ([], ["for"]):
            self._arithmetic_or_commands(2)
        elif "pattern" in cases[-1:]:
            self._at += 1
        else:
            self._at += 1
            self._within()

    def _keyword(self, words: list[str], cases: list[str]) -> None:
        """What the word just read changes: where a command begins, what a `)` means."""
        word = words[-1]
        self._line_words.append(word)
        is_first = len(words) == 1
        if is_first and word == "esac" and cases:
            cases.pop()
            words.clear()
        elif "pattern" in cases[-1:]:
            return
        elif is_first and word == "case":
            cases.append("head")
        elif word == "in" and len(words) != 2 and "head" in cases[-1:]:
            cases[-1] = "pattern"
            words.clear()
        elif is_first and word == "[[":
            self._test()
            words.clear()
        elif (is_first and (word in _OPENERS or word.endswith("()"))) or (word == "{" and words[0] == "function"):
            words.clear()

    def _word(
        self, words: list[str], danger: Danger | None = None, *, is_element: bool = False, is_of_command: bool = False
    ) -> None:
        """Read one word and add it to `words`. An element of an array may begin with a subscript."""
        start = self._at
        if plain := _PLAIN_WORD.match(self.text, start):
            self._at = plain.end()
            words.append(plain.group())
            return
        place = Place("bare", danger, words, start, is_of_command)
        outer, self._outer = self._outer, self._outer or dangers.evaluates(words)
        while self._at < len(self.text):
            char = self.text[self._at]
            if char in " \t\r\n;&|<>)" or (char == "(" and self._at == start):
                break
            if char == "(":
                self._at += 1
                self._list(dangers.in_elements(words, self.text[start : self._at], self._integers))
            elif char == "[" and dangers.is_subscript(words, self.text[start : self._at], is_element):
                self._subscript()
            elif not self._quoted_or_expanded(char, place):
                match = _PLAIN.match(self.text, self._at)
                self._at = match.end() if match else self._at + 1
        self._outer = outer
        words.append(self.text[start : self._at])

    def _quoted_or_expanded(self, char: str, place: Place) -> bool:
        """Read a quote, an escape or an expansion in text that is not quoted; False if there is none."""
        if char == "\\":
            self._at += 2
        elif char == "'":
            self._unexpanded(self._at + 1, "'", dangers.SINGLE_QUOTES)
        elif char == '"':
            self._at += 1
            self._double_quotes(place._replace(quoting="quoted"))
        elif char == "`":
            self._backticks()
        elif self.text.startswith("$'", self._at):
            self._unexpanded(self._at + 2, "\\'", dangers.SINGLE_QUOTES)
        elif char == "$":
            self._dollar(place)
        else:
            return False
        return True

    def _list(self, danger: Danger | None) -> None:
        """The elements of an array, or the branches of a pattern: words up to `)`."""
        while self._at < len(self.text):
            char = self.text[self._at]
            if char == ")":
                self._at += 1
                return
            if char in "\n;&|" or (char in "<>" and not self.text.startswith("(", self._at + 1)):
                self._at += 1
            elif char in "<>(":
                self._at += 1 if char == "(" else 2
                self._within()
            elif not self._skip_blank(char):
                self._word([], danger, is_element=True)

    # Redirections and here-documents

    def _redirection(self, words: list[str]) -> None:
        if self.text.startswith(("<(", ">("), self._at):
            self._at += 2
            self._within(self._outer or dangers.sourced(words))
            return
        self._drop_descriptor(words)
        match = _REDIRECTION.match(self.text, self._at)
        sign = match.group() if match else "&"
        self._at += len(sign)
        while self.text.startswith((" ", "\t"), self._at):
            self._at += 1
        if sign in ("<<", "<<-"):
            self._document(sign, words)
        elif not self.text.startswith(("(", "<(", ">("), self._at):
            self._word([sign], dangers.fed(words) if sign == "<<<" else None)

    def _drop_descriptor(self, words: list[str]) -> None:
        """Take away the number directly before a redirection: it is no argument of the command."""
        if words and words[-1].isdecimal() and self.text.endswith(words[-1], 0, self._at):
            number = words.pop()
            if self._line_words[-1:] == [number]:
                self._line_words.pop()

    def _document(self, sign: str, words: list[str]) -> None:
        match = _DELIMITER.match(self.text, self._at)
        if match is None:
            return
        self._refuse_within(self._at, match.end(), dangers.DELIMITER)
        self._at = match.end()
        delimiter = re.sub(r"\\(.)|['\"]", r"\1", match.group())
        is_quoted = delimiter != match.group()
        self._documents.append(Document(delimiter, is_quoted, sign == "<<-", dangers.fed(words)))

    def _read_documents(self) -> None:
        """Read the bodies of the here-documents that the line just ended has opened."""
        fed = self.end_line()
        waiting, self._documents = self._documents, []
        for document in waiting:
            start, end = self._at, self._document_end(document)
            if document.is_quoted:
                self._refuse_within(start, end, dangers.QUOTED_DOCUMENT)
            else:
                self._document_body(end, document.danger or fed)
            newline = self.text.find("\n", end)
            # The newline itself stays: it ends nothing, and the next body begins after it.
            self._at = len(self.text) if newline < 0 else newline + 1

    def end_line(self) -> Danger | None:
        """The danger of what the line just ended prints or feeds, if one of its commands is a shell that reads it."""
        words = [*self._inner_words, *self._line_words]
        self._inner_words, self._line_words = [], []
        printed, self._printed = self._printed, []
        if not printed and not self._documents:
            return None
        fed = dangers.fed(words)
        for spot in printed:
            spot.danger = spot.danger or fed
        return fed

    def _document_end(self, document: Document) -> int:
        """Where the line with the delimiter begins."""
        tabs = "\t*" if document.strips_tabs else ""
        pattern = re.compile(rf"^{tabs}{re.escape(document.delimiter)}$", re.M)
        match = pattern.search(self.text, self._at)
        return match.start() if match else len(self.text)

    def _document_body(self, end: int, danger: Danger | None) -> None:
        place = Place("document", danger)
        while self._at < end:
            char = self.text[self._at]
            if char == "\\":
                self._at += 2
            elif char == "`":
                self._backticks()
            elif char == "$":
                self._dollar(place)
            else:
                self._at += 1

    # Quotes

    def _double_quotes(self, place: Place) -> None:
        while self._at < len(self.text):
            char = self.text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\":
                self._at += 2
            elif char == "`":
                self._backticks()
            elif char == "$":
                self._dollar(place)
            else:
                match = _IN_QUOTES.match(self.text, self._at)
                self._at = match.end() if match else self._at + 1

    def _unexpanded(self, start: int, closer: str, danger: Danger) -> None:
        """Pass over single quotes; with `closer` of two characters the first of them escapes."""
        end = start
        while end < len(self.text) and self.text[end] != closer[-1]:
            end += 2 if len(closer) == 2 and self.text[end] == closer[0] else 1
        self._refuse_within(start, end, danger, "single" if len(closer) == 1 else "quoted")
        self._at = end + 1

    def _backticks(self) -> None:
        end = self._at + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        self._refuse_within(self._at + 1, end, dangers.BACKTICKS)
        self._at = end + 1

    def _refuse_within(self, start: int, end: int, danger: Danger, quoting: Quoting = "quoted") -> None:
        """Holes of ours from `start` to `end` are in danger; a `$${` there loses its first `$`."""
        for match in _HOLE.finditer(self.text, start, end):
            offset = match.end() - 2
            try:
                ours = find(self.text, offset, end, self.names)
            except ShellRefused:
                continue  # `${a.b}` that nobody knows is text here, as is all that is not expanded
            if ours and len(match.group()) == 3:
                self.escapes.append(match.start())
            elif ours:
                self.spots.append(Spot(ours, quoting, (), danger))

    # Expansions

    def _dollar(self, place: Place) -> None:
        """Read what a `$` begins."""
        after = self.text[self._at + 1 : self._at + 2]
        if after == "{":
            self._braces(place)
        elif self.text.startswith("$((", self._at):
            self._arithmetic_or_commands(3)
        elif after == "(":
            self._substitution(place)
        elif after == "[":
            self._at += 2
            self._until("]", Place("quoted", dangers.ARITHMETIC))
        else:
            self._at += 2 if after == "$" else 1

    def _substitution(self, place: Place) -> None:
        """Read `$(…)`. Where what it prints is evaluated, a value that it prints is in danger."""
        before = self.text[place.start : self._at]
        danger = dangers.inherited(place.words, before, self._integers, place.danger)
        danger = danger or dangers.at_start(before, self.text)
        is_bare = place.is_of_command and place.quoting == "bare"
        self._at += 2
        self._within(self._outer or danger, is_run=is_bare and dangers.names_a_command(place.words, before))

    def _arithmetic_or_commands(self, width: int) -> None:
        """`((…))`, or subshells that look like it. Neither is a place for a value."""
        end = self._arithmetic_end(self._at + width)
        if end < 0:
            self._at += width - 1
            self._within(dangers.ARITHMETIC)
            return
        self._at += width
        self._until_offset(end, Place("quoted", dangers.ARITHMETIC))
        self._at = end + 2

    def _arithmetic_end(self, start: int) -> int:
        """Where the `))` stands that closes arithmetic from `start`, or -1 if it is closed otherwise."""
        depth, at = 0, start
        while at < len(self.text):
            char = self.text[at]
            ours = find(self.text, at, len(self.text), self.names) if self.text.startswith("${", at) else None
            if ours:
                at = ours.end
                continue
            if char == ")" and depth == 0:
                return at if self.text.startswith("))", at) else -1
            depth += {"(": 1, ")": -1}.get(char, 0)
            at += 1
        return -1

    def _until_offset(self, end: int, place: Place) -> None:
        while self._at < end:
            self._expanded_or_passed(place)

    def _until(self, closer: str, place: Place) -> None:
        """Read to `closer`, which ends a parameter or a subscript."""
        while self._at < len(self.text) and self.text[self._at] != closer:
            self._expanded_or_passed(place)

    def _expanded_or_passed(self, place: Place) -> None:
        char = self.text[self._at]
        is_quote = char in "'\"" and place.quoting in ("bare", "pattern")
        if place.quoting in ("bare", "pattern") and self.text.startswith(("<(", ">("), self._at):
            self._at += 2
            self._within(place.danger)
        elif is_quote or char in "\\`":
            self._quoted_or_expanded(char, place)
        elif char == '"' and place.quoting == "quoted" and place.danger is None:
            self._at += 1
            self._double_quotes(place)
        elif char == "$":
            self._dollar(place)
        else:
            self._at += 1

    def _braces(self, place: Place) -> None:
        """Read `${…}`: a hole of ours, one with an operator of the shell's, or the shell's own."""
        ours = find(self.text, self._at, len(self.text), self.names)
        if ours is None:
            self._at = self._parameter_end(self._at + 2)
            self._subscript()
            self._operator(place)
            return
        spot = Spot(ours, place.quoting, place.words[:2], self._danger(place, ours))
        before = self.text[place.start : ours.offset]
        spot.is_command = place.is_of_command and dangers.is_program(place.words, before)
        self.spots.append(spot)
        if dangers.is_printed(place.words):
            self._printed.append(spot)
        self._at = ours.end
        if ours.operator:
            self._operator(place._replace(quoting="quoted") if place.quoting == "bare" else place)
            spot.close = self._at - 1
            spot.danger = spot.danger or self._operator_danger(ours, place)

    def _parameter_end(self, start: int) -> int:
        match = _PARAMETER.match(self.text, start)
        return match.end() if match else start

    def _subscript(self) -> None:
        """Read `[…]`, with the subscripts within it, if there is one."""
        place, depth = Place("quoted", dangers.SUBSCRIPT), 0
        while self._at < len(self.text):
            char = self.text[self._at]
            depth += {"[": 1, "]": -1}.get(char, 0)
            if depth == 0 and char != "]":
                return
            self._expanded_or_passed(place)
            if depth == 0:
                return

    def _operator(self, place: Place) -> None:
        """Read from the operator of a parameter to behind its `}`."""
        after = self.text[self._at : self._at + 2]
        is_substring = after[:1] == ":" and after[1:] not in tuple("-=+?")
        if is_substring:
            place = place._replace(quoting="quoted", danger=dangers.ARITHMETIC)
        elif after[:1] in tuple("#%/^,") and place.quoting == "document":
            place = place._replace(danger=dangers.DOCUMENT_PATTERN)
        elif after[:1] in tuple("#%/^,") and place.quoting == "quoted":
            place = place._replace(quoting="pattern")
        self._depth += 1
        self._refuse_too_deep()
        self._until("}", place)
        self._depth -= 1
        self._at += 1

    def _operator_danger(self, ours: Ours, place: Place) -> Danger | None:
        kept = self.text[ours.end : self._at]
        if kept.startswith("@P"):
            return dangers.TRANSFORMED
        is_default = ours.operator == ":" and kept[1:2] in tuple("-+=?")
        return dangers.QUOTED_DEFAULT if is_default and place.quoting == "bare" and "'" in kept else None

    def _danger(self, place: Place, ours: Ours) -> Danger | None:
        if place.danger:
            return place.danger
        if self._outer:
            return None if dangers.is_harmless(place.words, self._outer) else self._outer
        is_document = place.quoting == "document"
        if self._is_run and (is_document or dangers.is_printed(place.words)):
            return dangers.COMMAND
        before = self.text[place.start : ours.offset]
        if is_document:
            return None
        return dangers.misuses(place.words, before, self._integers) or dangers.at_start(before, self.text)

    # [[ … ]]

    def _test(self) -> None:
        """Read a `[[ … ]]`, in which numbers are compared by evaluating them."""
        operands: list[tuple[str, list[Spot]]] = []
        while self._at < len(self.text):
            char = self.text[self._at]
            if self.text.startswith(("<(", ">("), self._at):
                self._at += 2
                self._within()
            elif char in " \t\r\n()<>!&|;":
                self._at += 1
            elif not self._skip_blank(char):
                words: list[str] = []
                first = len(self.spots)
                self._word(words)
                operands.append((words[0], self.spots[first:]))
                if words[0] == "]]":
                    break
        self._refuse_compared(operands)

    def _refuse_compared(self, operands: list[tuple[str, list[Spot]]]) -> None:
        for index, (word, _) in enumerate(operands):
            sides = operands[max(index - 1, 0) : index + 2] if word in _NUMBER_TESTS else []
            sides = operands[index + 1 : index + 2] if word == "-v" else sides
            for spot in (spot for _, spots in sides for spot in spots):
                spot.danger = spot.danger or self._comparison_danger(word, spot)

    def _comparison_danger(self, sign: str, spot: Spot) -> Danger | None:
        danger = dangers.NAME if sign == "-v" else dangers.COMPARISON
        return None if dangers.is_harmless(spot.words, danger) else danger
