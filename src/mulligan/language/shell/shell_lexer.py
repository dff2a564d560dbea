"""A small lexer of bash. It finds for every placeholder how it is quoted and whether it is safe there.

It knows as much of bash as this needs: words, quotes, `$(…)`, `$((…))`, `${…}`, here-documents, `[[ … ]]`, `case`,
arrays, comments. It skips what it does not know and never changes the text. Whether a placeholder is safe depends on
the quotes around it, the word it is part of, and the command whose argument it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.shell import shell_safety as dangers
from mulligan.language.shell.command_words import CommandWords
from mulligan.language.shell.shell_placeholders import Names, ShellPlaceholder, ShellRefused, find_placeholder
from mulligan.language.shell.shell_safety import Danger

DEPTH_MAX = 64
# What a word is, is seen in this many characters; and bash takes no more here-documents than this in one command.
WORD_CHARS_MAX, INPUTS_MAX = 1024, 16
_PLAIN = lazy_regex(r"[^\s;&|<>()\[\\'\"`$]+")
_PLAIN_WORD = lazy_regex(rf"{_PLAIN.pattern}(?=[\s;&|<>)]|$)")
_BLANK = lazy_regex(r"(?:[ \t\r]+|\\\n|#[^\n]*)+")
_IN_QUOTES = lazy_regex(r'[^"\\`$]+')
_PLACEHOLDER = lazy_regex(r"\$?\$\{")
_REDIRECTION = lazy_regex(r"&>>?|<<<|<<-|<<|<>|>>|>\||[<>]&|[<>]")
_PARENTHESIS_OR_BRACE = lazy_regex(r"[()]|\$\{")
_PARAMETER = lazy_regex(r"[#!]?(?:[A-Za-z_]\w*|\d+|[-@*?$!#])?")
_DELIMITER = lazy_regex(r"""(?:'[^'\n]*'|"[^"\n]*"|\\.|[^\s;&|<>()'"\\])+""")
_NUMBER_TESTS = frozenset("-eq -ne -lt -le -gt -ge".split())
# A new command begins after these words.
_OPENERS = frozenset("if then else elif do while until ! { } time coproc fi done".split())
# Unquoted; in double quotes; in a here-document; in a pattern inside double quotes; in single quotes, where the shell
# expands nothing.
Quoting = Literal["bare", "quoted", "document", "pattern", "single"]


class PlaceholderSite(msgspec.Struct):
    """A placeholder of ours and where it stands: its quotes, the first words of its command, its danger.

    `close` is the offset of the closing `}` if a shell operator is kept. `is_command`: its word names the program.
    """

    placeholder: ShellPlaceholder
    quoting: Quoting
    words: Sequence[str]
    danger: Danger | None = None
    close: int | None = None
    is_command: bool = False


class Scan(NamedTuple):
    """`escapes` are the offsets of `$` to remove: `$${` where the shell expands nothing."""

    sites: list[PlaceholderSite]
    escapes: list[int]


class Context(NamedTuple):
    """The lexer's context: quoting, the words of the command so far, and where the current word began."""

    quoting: Quoting
    danger: Danger | None = None
    words: CommandWords = CommandWords()
    start: int = 0
    # Whether the word may name a command; an array element may not.
    is_of_command: bool = False


class Document(NamedTuple):
    """A here-document whose body has not been read yet."""

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    danger: Danger | None


class _Parentheses:
    """Where the parentheses of a text close, by how many are open before; and the placeholders that are refused."""

    def __init__(self) -> None:
        self.closers: dict[int, list[int]] = {}
        self.refused_at: list[int] = []
        self.refusals: list[ShellRefused] = []
        # Where the last placeholder ends.
        self.end = 0
        self._depth = 0
        # Where the depth changes, and to what.
        self._changes: list[int] = []
        self._depths: list[int] = [0]

    def add(self, at: int, sign: str) -> None:
        if sign == ")":
            self.closers.setdefault(self._depth, []).append(at)
        self._depth += 1 if sign == "(" else -1
        self._changes.append(at)
        self._depths.append(self._depth)

    def add_placeholder(self, at: int, found: ShellPlaceholder | ShellRefused | None) -> None:
        if isinstance(found, ShellRefused):
            self.refused_at.append(at)
            self.refusals.append(found)
        elif found is not None:
            self.end = found.end

    def depth_at(self, offset: int) -> int:
        return self._depths[bisect_left(self._changes, offset)]


def scan(text: str, names: Names) -> Scan:
    """The placeholders in `text`, in order, each with its danger if any."""
    scanner = _Scanner(text, names)
    scanner.commands("")
    scanner.end_line()
    scanner.sites.sort(key=lambda site: site.placeholder.offset)
    return Scan(scanner.sites, scanner.escapes)


class _Scanner:
    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.sites: list[PlaceholderSite] = []
        self.escapes: list[int] = []
        self._at = 0
        self._depth = 0
        self._outer: Danger | None = None
        self._is_run = False
        self._documents: list[Document] = []
        # The words of the line, and those of nested commands that have ended.
        self._line_words: list[str] = []
        self._inner_words: list[str] = []
        self._printed: list[PlaceholderSite] = []
        self._integers = dangers.integer_variables(text)
        # The start of the last long word, and its first characters.
        self._long_word = (-1, "")
        # The here-documents and here-strings of the command.
        self._inputs = 0

    # Commands and words

    def commands(self, closer: str) -> None:
        """Read commands up to `closer`, which is `)` or, for the whole text, nothing."""
        self._refuse_too_deep()
        self._depth += 1
        words = CommandWords()
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
                words = CommandWords()
                self._inputs = 0
            elif char in "<>&":
                self._redirection(words)
            elif char == "(":
                self._parenthesis(words, cases)
                words = CommandWords()
            else:
                self._word(words, is_of_command="pattern" not in cases[-1:])
                self._keyword(words, cases)
        self._depth -= 1

    def _read_nested(self, danger: Danger | None = None, *, is_run: bool = False) -> None:
        """Read nested commands up to `)`; their words count for the line. `is_run`: their output is run."""
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
        """Skip blanks, continued lines and comments before a word."""
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

    def _parenthesis(self, words: CommandWords, cases: list[str]) -> None:
        """A subshell, `((…))`, the `()` of a function, or the `(` before a pattern of `case`."""
        if self.text.startswith("((", self._at) and words in ([], ["for"]):
            self._arithmetic_or_commands(2)
        elif "pattern" in cases[-1:]:
            self._at += 1
        else:
            self._at += 1
            self._read_nested()

    def _keyword(self, words: CommandWords, cases: list[str]) -> None:
        """Update the state after a word: where a command begins, what a `)` means."""
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
        self,
        words: CommandWords,
        danger: Danger | None = None,
        *,
        is_element: bool = False,
        is_of_command: bool = False,
    ) -> None:
        """Read one word and add it to `words`. An element of an array may begin with a subscript."""
        start = self._at
        if plain := _PLAIN_WORD.match(self.text, start):
            self._at = plain.end()
            words.append(plain.group())
            return
        context = Context("bare", danger, words, start, is_of_command)
        outer, self._outer = self._outer, self._outer or dangers.argument_danger(words)
        while self._at < len(self.text):
            char = self.text[self._at]
            if char in " \t\r\n;&|<>)" or (char == "(" and self._at == start):
                break
            if char == "(":
                self._at += 1
                self._read_elements(dangers.element_danger(words, self._before(start), self._integers))
            elif char == "[" and dangers.is_subscript(words, self._before(start), is_element):
                self._subscript()
            elif not self._read_quoted_or_expanded(char, context):
                match = _PLAIN.match(self.text, self._at)
                self._at = match.end() if match else self._at + 1
        self._outer = outer
        words.append(self.text[start : self._at])

    def _read_quoted_or_expanded(self, char: str, context: Context) -> bool:
        """Read a quote, an escape or an expansion in text that is not quoted; False if there is none."""
        if char == "'":
            self._skip_single_quotes(self._at + 1, "'", dangers.SINGLE_QUOTES)
        elif char == '"':
            self._at += 1
            self._double_quotes(context._replace(quoting="quoted"))
        elif self.text.startswith("$'", self._at):
            self._skip_single_quotes(self._at + 2, "\\'", dangers.SINGLE_QUOTES)
        else:
            return self._read_expanded(char, context)
        return True

    def _read_expanded(self, char: str, context: Context) -> bool:
        """Read an escape, backticks or an expansion; False if there is none."""
        if char == "\\":
            self._at += 2
        elif char == "`":
            self._backticks()
        elif char == "$":
            self._dollar(context)
        else:
            return False
        return True

    def _read_elements(self, danger: Danger | None) -> None:
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
                self._read_nested()
            elif not self._skip_blank(char):
                self._word(CommandWords(), danger, is_element=True)

    # Redirections and here-documents

    def _redirection(self, words: CommandWords) -> None:
        if self.text.startswith(("<(", ">("), self._at):
            self._at += 2
            self._read_nested(self._outer or dangers.process_substitution_danger(words))
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
            self._word(CommandWords([sign]), self._input_danger(words) if sign == "<<<" else None)

    def _input_danger(self, words: CommandWords) -> Danger | None:
        self._inputs += 1
        if self._inputs > INPUTS_MAX:
            message = f"a command has more than {INPUTS_MAX} here-documents and here-strings"
            raise ShellRefused(message, self._at, 1, "it reads only the last one")
        return dangers.input_danger(words)

    def _drop_descriptor(self, words: CommandWords) -> None:
        """Remove the file descriptor before a redirection: it is not an argument of the command."""
        if words and words[-1].isdecimal() and self.text.endswith(words[-1], 0, self._at):
            number = words.drop_last()
            if self._line_words[-1:] == [number]:
                self._line_words.pop()

    def _document(self, sign: str, words: CommandWords) -> None:
        match = _DELIMITER.match(self.text, self._at)
        if match is None:
            return
        self._refuse_within(self._at, match.end(), dangers.DELIMITER)
        self._at = match.end()
        delimiter = re.sub(r"\\(.)|['\"]", r"\1", match.group())
        is_quoted = delimiter != match.group()
        self._documents.append(Document(delimiter, is_quoted, sign == "<<-", self._input_danger(words)))

    def _read_documents(self) -> None:
        """Read the bodies of the here-documents that the previous line opened."""
        fed = self.end_line()
        waiting, self._documents = self._documents, []
        for document in waiting:
            start, end = self._at, self._document_end(document)
            if document.is_quoted:
                self._refuse_within(start, end, dangers.QUOTED_DOCUMENT)
            else:
                self._document_body(end, document.danger or fed)
            newline = self.text.find("\n", end)
            # The next body begins after the newline.
            self._at = len(self.text) if newline < 0 else newline + 1

    def end_line(self) -> Danger | None:
        """The danger of text that the line prints or feeds, if one of its commands is a shell that reads it."""
        words = [*self._inner_words, *self._line_words]
        self._inner_words, self._line_words = [], []
        printed, self._printed = self._printed, []
        if not printed and not self._documents:
            return None
        fed = dangers.input_danger(words)
        for site in printed:
            site.danger = site.danger or fed
        return fed

    def _document_end(self, document: Document) -> int:
        """Where the line with the delimiter begins."""
        tabs = "\t*" if document.strips_tabs else ""
        pattern = re.compile(rf"^{tabs}{re.escape(document.delimiter)}$", re.M)
        match = pattern.search(self.text, self._at)
        return match.start() if match else len(self.text)

    def _document_body(self, end: int, danger: Danger | None) -> None:
        context = Context("document", danger)
        while self._at < end:
            if not self._read_expanded(self.text[self._at], context):
                self._at += 1

    # Quotes

    def _double_quotes(self, context: Context) -> None:
        while self._at < len(self.text):
            char = self.text[self._at]
            if char == '"':
                self._at += 1
                return
            if not self._read_expanded(char, context):
                match = _IN_QUOTES.match(self.text, self._at)
                self._at = match.end() if match else self._at + 1

    def _skip_single_quotes(self, start: int, closer: str, danger: Danger) -> None:
        """Skip single quotes; if `closer` has two characters, the first one is the escape."""
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
        """Mark the placeholders from `start` to `end` as dangerous; a `$${` there loses its first `$`."""
        for match in _PLACEHOLDER.finditer(self.text, start, end):
            offset = match.end() - 2
            try:
                placeholder = find_placeholder(self.text, offset, end, self.names)
            except ShellRefused:
                continue  # nothing is expanded here, so an unknown `${a.b}` is plain text
            if placeholder and len(match.group()) == 3:
                self.escapes.append(match.start())
            elif placeholder:
                self.sites.append(PlaceholderSite(placeholder, quoting, (), danger))

    # Expansions

    def _dollar(self, context: Context) -> None:
        """Read an expansion that begins with `$`."""
        after = self.text[self._at + 1 : self._at + 2]
        if after == "{":
            self._braces(context)
        elif self.text.startswith("$((", self._at):
            self._arithmetic_or_commands(3)
        elif after == "(":
            self._substitution(context)
        elif after == "[":
            self._at += 2
            self._read_until("]", Context("quoted", dangers.ARITHMETIC))
        else:
            self._at += 2 if after == "$" else 1

    def _substitution(self, context: Context) -> None:
        """Read `$(…)`. If its output is evaluated, a value that it prints is in danger."""
        danger, is_run = context.danger, False
        if danger is None:
            before = self._before(context.start) if context.quoting != "document" else ""
            danger = dangers.printed_danger(context.words, before, self._integers, None)
            danger = danger or dangers.startup_danger(before, self._has_started_shell)
        if context.is_of_command and context.quoting == "bare":
            is_run = dangers.names_a_command(context.words, self._before(context.start))
        self._at += 2
        self._read_nested(self._outer or danger, is_run=is_run)

    def _before(self, start: int) -> str:
        """The word that began at `start`, up to here; of a long one, as much as shows what it is.

        A long word may have thousands of values, and each of them asks.
        """
        if self._at - start <= WORD_CHARS_MAX:
            return self.text[start : self._at]
        if self._long_word[0] != start:
            self._long_word = start, self.text[start : start + WORD_CHARS_MAX]
            if dangers.is_undecided(self._long_word[1]):
                message = f"a word with a value has a name of more than {WORD_CHARS_MAX:,} characters"
                raise ShellRefused(message, start, 1, "put a part of it in a variable, or in double quotes")
        return self._long_word[1]

    @cached_property
    def _has_started_shell(self) -> bool:
        return dangers.names_started_shell(self.text)

    def _arithmetic_or_commands(self, width: int) -> None:
        """Read `((…))`, or subshells that look like it. Neither may contain a value."""
        end = self._arithmetic_end(self._at + width)
        if end < 0:
            self._at += width - 1
            self._read_nested(dangers.ARITHMETIC)
            return
        self._at += width
        context = Context("quoted", dangers.ARITHMETIC)
        while self._at < end:
            self._read_character(context)
        self._at = end + 2

    def _arithmetic_end(self, start: int) -> int:
        """The offset of the `))` that closes arithmetic from `start`, or -1 if this is not arithmetic."""
        found = self._parentheses
        closers = found.closers.get(found.depth_at(start), [])
        index = bisect_left(closers, start)
        end = closers[index] if index < len(closers) else len(self.text)
        refused = bisect_left(found.refused_at, start)
        if refused < len(found.refused_at) and found.refused_at[refused] < end:
            raise found.refusals[refused]
        return end if self.text.startswith("))", end) else -1

    @cached_property
    def _parentheses(self) -> _Parentheses:
        """All parentheses of the text, found once: a text may begin arithmetic that does not end a thousand times."""
        found = _Parentheses()
        for match in _PARENTHESIS_OR_BRACE.finditer(self.text):
            at = match.start()
            if at < found.end:
                continue  # in a placeholder
            if match.group() == "${":
                found.add_placeholder(at, self._placeholder_in_arithmetic(at))
            else:
                found.add(at, match.group())
        return found

    def _placeholder_in_arithmetic(self, at: int) -> ShellPlaceholder | ShellRefused | None:
        try:
            return find_placeholder(self.text, at, len(self.text), self.names)
        except ShellRefused as refused:
            return refused

    def _read_until(self, closer: str, context: Context) -> None:
        """Read up to `closer`, which ends a parameter or a subscript."""
        while self._at < len(self.text) and self.text[self._at] != closer:
            self._read_character(context)

    def _read_character(self, context: Context) -> None:
        char = self.text[self._at]
        is_quote = char in "'\"" and context.quoting in ("bare", "pattern")
        if context.quoting in ("bare", "pattern") and self.text.startswith(("<(", ">("), self._at):
            self._at += 2
            self._read_nested(context.danger)
        elif is_quote:
            self._read_quoted_or_expanded(char, context)
        elif char == '"' and context.quoting == "quoted" and context.danger is None:
            self._at += 1
            self._double_quotes(context)
        elif not self._read_expanded(char, context):
            self._at += 1

    def _braces(self, context: Context) -> None:
        """Read `${…}`: a placeholder, perhaps with a shell operator, or a shell expansion."""
        placeholder = find_placeholder(self.text, self._at, len(self.text), self.names)
        if placeholder is None:
            match = _PARAMETER.match(self.text, self._at + 2)
            self._at = match.end() if match else self._at + 2
            self._subscript()
            self._operator(context)
            return
        site = PlaceholderSite(placeholder, context.quoting, context.words[:2], self._danger(context))
        site.is_command = context.is_of_command and dangers.is_program(context.words, self._before(context.start))
        self.sites.append(site)
        if dangers.is_printed(context.words):
            self._printed.append(site)
        self._at = placeholder.end
        if placeholder.operator:
            self._operator(context._replace(quoting="quoted") if context.quoting == "bare" else context)
            site.close = self._at - 1
            site.danger = site.danger or self._operator_danger(placeholder, context)

    def _subscript(self) -> None:
        """Read `[…]` and nested subscripts, if there is one."""
        context, depth = Context("quoted", dangers.SUBSCRIPT), 0
        while self._at < len(self.text):
            char = self.text[self._at]
            depth += {"[": 1, "]": -1}.get(char, 0)
            if depth == 0 and char != "]":
                return
            self._read_character(context)
            if depth == 0:
                return

    def _operator(self, context: Context) -> None:
        """Read from the operator of a parameter to after its `}`."""
        after = self.text[self._at : self._at + 2]
        is_substring = after[:1] == ":" and after[1:] not in tuple("-=+?")
        if is_substring:
            context = context._replace(quoting="quoted", danger=dangers.ARITHMETIC)
        elif after[:1] in tuple("#%/^,") and context.quoting == "document":
            context = context._replace(danger=dangers.DOCUMENT_PATTERN)
        elif after[:1] in tuple("#%/^,") and context.quoting == "quoted":
            context = context._replace(quoting="pattern")
        self._depth += 1
        self._refuse_too_deep()
        self._read_until("}", context)
        self._depth -= 1
        self._at += 1

    def _operator_danger(self, placeholder: ShellPlaceholder, context: Context) -> Danger | None:
        kept = self.text[placeholder.end : self._at]
        if kept.startswith("@P"):
            return dangers.TRANSFORMED
        is_default = placeholder.operator == ":" and kept[1:2] in tuple("-+=?")
        return dangers.QUOTED_DEFAULT if is_default and context.quoting == "bare" and "'" in kept else None

    def _danger(self, context: Context) -> Danger | None:
        if context.danger:
            return context.danger
        if self._outer:
            return None if dangers.is_harmless(context.words, self._outer) else self._outer
        is_document = context.quoting == "document"
        if self._is_run and (is_document or dangers.is_printed(context.words)):
            return dangers.COMMAND
        if is_document:
            return None
        before = self._before(context.start)
        danger = dangers.word_danger(context.words, before, self._integers)
        return danger or dangers.startup_danger(before, self._has_started_shell)

    # [[ … ]]

    def _test(self) -> None:
        """Read a `[[ … ]]`, in which numbers are compared by evaluating them."""
        operands: list[tuple[str, list[PlaceholderSite]]] = []
        while self._at < len(self.text):
            char = self.text[self._at]
            if self.text.startswith(("<(", ">("), self._at):
                self._at += 2
                self._read_nested()
            elif char in " \t\r\n()<>!&|;":
                self._at += 1
            elif not self._skip_blank(char):
                words = CommandWords()
                first = len(self.sites)
                self._word(words)
                operands.append((words[0], self.sites[first:]))
                if words[0] == "]]":
                    break
        for index, (word, _) in enumerate(operands):
            sides = operands[max(index - 1, 0) : index + 2] if word in _NUMBER_TESTS else []
            danger = dangers.COMPARISON
            if word == "-v":
                sides, danger = operands[index + 1 : index + 2], dangers.NAME
            for site in (site for _, sites in sides for site in sites):
                if site.danger is None and not dangers.is_harmless(site.words, danger):
                    site.danger = danger
