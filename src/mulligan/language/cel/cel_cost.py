"""An upper bound for the time an expression may take, from its tokens and the size of what it reads.

Neither engine has a limit that can be set, and both copy the list at each item that `map` or `filter` adds. The bound
is mostly far too high. It only decides whether an expression is evaluated directly, or in a process that can be killed
(`cel_process`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel import MACROS
from mulligan.language.cel.cel_tokens import Token

# Above this an expression gets a separate process, which costs a few milliseconds.
DIRECT_SECONDS_MAX = 0.1
# Microseconds, as measured (docs/project/adr/0023). For a value that is handed to the engine.
_VALUE_MICROS = 3.0
# For each time round a loop, and there for each item of a list that is copied: alone, or with all that is in it; and
# for each value of what is read from around the loop, which may be compared or come out of it each time.
_ROUND_MICROS = 1.0
_ITEM_MICROS = 0.06
_DEEP_MICROS = 0.3
_AROUND_MICROS = 1.5
# For a character that is read, or matched: against any pattern, and for each character of the pattern.
_CHAR_MICROS = 0.005
_MATCH_MICROS = 1.0
_MATCH_STATE_MICROS = 0.04
# For a character of a text that is compared with one of the text that is searched for in it.
_PAIR_MICROS = 0.0001
# To compile one character of a pattern. A call takes as long as some characters, and so does a class such as `\w`.
_PATTERN_MICROS = 10.0
_PATTERN_CALL_CHARS = 10
_PATTERN_ESCAPE_CHARS = 60
# A class in brackets, where case is ignored: both cases of nearly all Unicode may be added to it.
_PATTERN_FOLDED_CHARS = 800
_IGNORES_CASE = lazy_regex(r"\(\\?\?[^:)]*i")
# A pattern that is not known before takes longer than any expression that is evaluated at once.
_PATTERN_UNKNOWN_CHARS = 1e6
# A class of Unicode compiles slowly, and escapes by number may hide one, or a count. So do characters beyond ASCII.
_SLOW_IN_PATTERN = lazy_regex(r"\\[pPxXuU0-7]|[^\x00-\x7f]")
_DIGITS = lazy_regex("[0-9]+")
_SEARCHES = frozenset("contains indexOf lastIndexOf replace split".split())
# A cap, so that its square stays below the largest float.
_SEARCHED_CHARS_MAX = 1e15
# Estimates stay below the largest float.
_LOG_MAX = 300.0


class Size(NamedTuple):
    """The size of what an expression reads: bytes as JSON, number of values, items of the largest list or map."""

    bytes: int
    values: int
    items: int


class Cost(NamedTuple):
    """The properties of an expression that decide how long it may take."""

    # Its length, without blanks: no text or list that is written in it is longer.
    chars: int
    # How many macros it has, and how many of them stand inside each other: only those multiply.
    macros: int
    depth: int
    # Whether one of them reads more than the item that it binds.
    reads_around: bool
    # How often `+` or a comma lets a value stand there once more.
    copies: int
    splits: bool
    joins: bool
    # The characters of all its patterns with their repeats, as they are compiled and as they are matched.
    patterns: float
    states: float
    # The characters of all texts that are searched for and written there, and how many are not written there.
    needles: int
    needles_unknown: int
    # How much longer texts become by those calls of `replace` that say it, and how many do not.
    replaced: float
    replaces: int

    def seconds_max(self, size: Size, *, copies_deeply: bool) -> float:
        """The longest that an evaluation with values of this size may take."""
        chars = self._chars_max(size)
        items = max(size.items, self.copies + 1, chars if self.splits else 1)
        values = size.values + (chars if self.splits else 0)
        char_micros = max(_MATCH_MICROS, self.states * _MATCH_STATE_MICROS) if self.patterns else _CHAR_MICROS
        pattern_micros = self.patterns * _PATTERN_MICROS
        # How much copies enlarge a value if each macro copies the result of the previous one.
        growth = _power(1 + self.copies / max(1, self.macros), max(1, self.macros))
        search_micros = self._search_micros(chars * growth)
        micros = values * _VALUE_MICROS + pattern_micros
        micros += ((size.bytes + chars) * char_micros + search_micros) * (1 + self.macros)
        if self.macros:
            # Texts that are written in the loop are searched and matched each time.
            once = _ROUND_MICROS + pattern_micros + self.chars * char_micros + self._search_micros(self.chars)
            once += values * _DEEP_MICROS if copies_deeply else items * _ITEM_MICROS
            once += values * _AROUND_MICROS + chars * char_micros + search_micros if self.reads_around else 0.0
            micros += self.macros * _power(items, self.depth) * once
        return micros * growth / 1e6

    def _search_micros(self, chars: float) -> float:
        """The time to search texts of this length: each needle may be compared at each offset."""
        chars = min(chars, _SEARCHED_CHARS_MAX)
        # A needle half as long as the text takes longest: longer ones fit at fewer offsets.
        return (chars * self.needles + self.needles_unknown * chars * chars / 4) * _PAIR_MICROS

    def _chars_max(self, size: Size) -> float:
        """The most characters of text that it produces, without what `+` adds."""
        written = size.bytes + self.chars
        chars = written * self.replaced * _power(written, self.replaces)
        return chars + size.items * written if self.joins else chars


def cost(found: list[Token], *, reads_around: bool) -> Cost:
    """The cost of the expression that consists of these tokens."""
    texts = [token.text if token.kind != "string" else "" for token in found]
    macros, depth = _macros(texts)
    replaced, replaces = _replacements(found)
    patterns, states = _patterns(found)
    needles = list(_first_arguments(found, _SEARCHES, "),"))
    return Cost(
        chars=sum(len(token.text) for token in found),
        macros=macros,
        depth=depth,
        reads_around=reads_around,
        # Each macro contains one comma itself.
        copies=max(0, texts.count("+") + texts.count(",") - macros),
        splits="split" in texts,
        joins="join" in texts,
        patterns=patterns,
        states=states,
        needles=sum(len(one.text.encode(errors="surrogatepass")) for one in needles if one is not None),
        needles_unknown=needles.count(None),
        replaced=replaced,
        replaces=replaces,
    )


def rough_size(encoded: bytes) -> Size:
    """The size of a value, estimated from its JSON: commas and brackets in texts count as well."""
    commas = encoded.count(b",")
    return Size(len(encoded), 1 + commas + encoded.count(b":") + encoded.count(b"[") + encoded.count(b"{"), commas + 1)


def close_size(value: Any, rough: Size) -> Size:
    """The same with the exact number of items of the longest list or map, which visits each of them."""
    most = 0
    pending = [value]
    for one in pending:
        most = max(most, len(one))
        inside = one.values() if isinstance(one, dict) else one
        pending += [inner for inner in inside if isinstance(inner, dict | list | tuple)]
    return rough._replace(items=most)


def _macros(texts: list[str]) -> tuple[int, int]:
    """The number of macros and their deepest nesting."""
    count = depth = 0
    is_macro: list[bool] = []
    for before, text in zip(["", *texts], texts, strict=False):
        if text == "(":
            is_macro.append(before in MACROS)
            count += is_macro[-1]
            depth = max(depth, sum(is_macro))
        elif text == ")" and is_macro:
            is_macro.pop()
    return count, depth


def _patterns(found: list[Token]) -> tuple[float, float]:
    """The characters of all patterns with their repeats: for compiling and for matching."""
    compiled = matched = 0.0
    for written in _first_arguments(found, frozenset({"matches"}), ")"):
        if written is None or _SLOW_IN_PATTERN.search(written.text):
            compiled += _PATTERN_UNKNOWN_CHARS
            continue
        # Repeats may be nested. All digits after the first brace may be counts.
        _, _, counts = written.text.partition("{")
        repeats = math.prod(max(1.0, float(digits)) for digits in _DIGITS.findall(counts))
        length = len(written.text)
        slow = written.text.count("\\") * _PATTERN_ESCAPE_CHARS
        if _IGNORES_CASE.search(written.text):
            slow += written.text.count("[") * _PATTERN_FOLDED_CHARS
        compiled += _PATTERN_CALL_CHARS + (length + slow) * repeats
        matched += length * repeats
    return min(compiled, _PATTERN_UNKNOWN_CHARS), min(matched, _PATTERN_UNKNOWN_CHARS)


def _first_arguments(found: list[Token], functions: frozenset[str], ends: str) -> Iterator[Token | None]:
    """The first argument of each call of these functions if it is a literal text, otherwise None."""
    for at, token in enumerate(found):
        after = found[at + 1 : at + 4]
        if token.kind == "name" and token.text in functions and after and after[0].text == "(":
            kinds = [one.kind for one in after]
            yield after[1] if kinds == ["sign", "string", "sign"] and after[2].text in ends else None


def _replacements(found: list[Token]) -> tuple[float, int]:
    """How much literal replacements lengthen a text, and the number of replacements that are not literal."""
    known, unknown = 1.0, 0
    for at, token in enumerate(found):
        if token.kind != "name" or token.text != "replace":
            continue
        after = found[at + 1 : at + 6]
        if [one.kind for one in after] == ["sign", "string", "sign", "string", "sign"] and after[4].text in "),":
            known *= 1 + len(after[3].text)
        else:
            unknown += 1
    return known, unknown


def _power(base: float, exponent: int) -> float:
    return math.exp(min(_LOG_MAX, exponent * math.log(base))) if base > 0 and exponent else 1.0
