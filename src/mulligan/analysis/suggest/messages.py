"""Groups failure messages: what varies from one failure to the next is taken out.

A message becomes a *template*: the line with the error as words, in which numbers, paths, hashes, addresses, times and
quoted values are replaced by a mark. Two messages with the same template are the same error. Templates that differ in
one word only are merged afterwards, see `merge_templates`. Both depend on the messages alone and not on their order.

Messages are untrusted: every expression here takes linear time, and `pattern_of` gives printable ASCII only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from mulligan.core.deciding.bounded_regex import NotSearchable, is_found, refuse_unsearchable
from mulligan.core.model.text.credential_patterns import HIDDEN, hide_credentials
from mulligan.core.model.text.formatting import strip_control_characters
from mulligan.core.model.text.lazy_regex import lazy_regex

# A template: words, some with marks inside.
Template = tuple[str, ...]

# How much of a line counts, and how many words.
LINE_CHARS_MAX, WORDS_MAX = 240, 40
# A pattern with fewer letters would match too much.
LETTERS_MIN = 8
# This many templates that differ in one word only are one: two may be two errors.
ALIKE_MIN = 3

# Stand for what was taken out. They are private characters, so no message can contain them: see `_readable`.
NUMBER, VALUE, WORD = "\ue000", "\ue001", "\ue002"
MARKS = {NUMBER: "<number>", VALUE: "<value>", WORD: "<word>"}
# How a pattern writes them; the second form is for messages with several blanks in a row, and for numbers like 1,024.5.
_EXPRESSIONS = {NUMBER: r"\d+", VALUE: ".+", WORD: r"\S+"}
_WIDER = {NUMBER: r"\d[\d.,]*", VALUE: ".+", WORD: r"\S+", " ": r"\s+"}

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# What varies, in the order in which it is looked for. Quantifiers are bounded, so each takes linear time.
_VALUES = lazy_regex(
    "|".join(
        (
            # Credentials that were hidden.
            re.escape(HIDDEN),
            # Times: 2026-11-17T03:12:00.123+01:00, 2026/11/17 03:12:00, 17 Nov 2026, 03:12:00.
            r"\b\d{4}[-/]\d\d?[-/]\d\d?(?:[T ]\d\d?:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?",
            rf"\b(?:\d\d? )?(?:{_MONTHS}) \d\d?(?: \d{{4}})?(?: \d\d?:\d\d(?::\d\d)?)?\b",
            r"\b\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?\b",
            # Quoted values.
            r"(?<![A-Za-z0-9])'[^']{1,200}'(?![A-Za-z])",
            r'"[^"]{1,200}"',
            r"`[^`]{1,200}`",
            # Addresses: of the web, of mail, of machines.
            r"\b[a-z][a-z0-9+.-]{1,15}://[^\s<>'\"]{1,200}",
            r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}",
            r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b",
            r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{0,4}(?![\w:])",
            # Hashes and identifiers.
            r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
            r"\b0[xX][0-9a-fA-F]{1,32}\b",
            r"\b(?=[0-9a-fA-F]{0,63}\d)(?=[0-9a-fA-F]{0,63}[a-fA-F])[0-9a-fA-F]{7,64}\b",
            # Paths.
            r"(?<![\w.~])(?:~|\.{1,2})?/[\w.@%+=-]{1,100}(?:/[\w.@%+=-]{0,100}){0,30}",
            r"\b[A-Za-z]:\\[^\s:*?\"<>|]{1,200}",
            r"(?<![\w./])[\w.@%+=-]{1,60}(?:/[\w.@%+=-]{1,60}){2,20}",
        )
    )
)
_NUMBERS = lazy_regex(r"\d{1,40}(?:[.,]\d{1,40}){0,4}")
_LETTERS = lazy_regex("[A-Za-z]{2,}")
_SPECIAL = lazy_regex(r"[.^$*+?{}\[\]\\|()]")
_MARK = lazy_regex(f"[{NUMBER}-{WORD}]")


def template_of(message: str) -> Template:
    """The template of a message; () if it says nothing."""
    line = _VALUES.sub(VALUE, hide_credentials(error_line(message)))
    return tuple(_NUMBERS.sub(NUMBER, line).split()[:WORDS_MAX])


def error_line(message: str) -> str:
    """The line that says what went wrong: the last one with at least two words, as programs print it last."""
    lines = [line.strip() for line in _readable(message[-4 * LINE_CHARS_MAX :]).splitlines()]
    with_words = [line for line in lines if len(_LETTERS.findall(line)) > 1]
    return (with_words or [line for line in lines if line] or [""])[-1][:LINE_CHARS_MAX]


def _readable(text: str) -> str:
    """The text without terminal control and without the characters that are marks here."""
    return _MARK.sub("?", strip_control_characters(text))


def written(template: Template) -> str:
    """The template as people read it: `no route to <value> after <number> tries`."""
    return _MARK.sub(lambda found: MARKS[found[0]], " ".join(template))


# -- merging ---------------------------------------------------------------------------------------------------------


def merge_templates(templates: Iterable[Template]) -> dict[Template, Template]:
    """Where each template belongs: those that differ in the same one word only become one, with a mark for the word.

    Words that vary are user names, hosts and tables; there must be at least `ALIKE_MIN` of them, and two other words
    that stay the same. A hash that happens to have digits only is no number.
    """
    owners = {one: one for one in templates}
    _merge(owners, {one: tuple(word.replace(NUMBER, VALUE) for word in one) for one in owners}, 2)
    for at in range(WORDS_MAX):
        wider = {one: (*one[:at], WORD, *one[at + 1 :]) for one in {*owners.values()} if _may_vary(one, at)}
        _merge(owners, wider, ALIKE_MIN)
    return owners


def _merge(owners: dict[Template, Template], wider: Mapping[Template, Template], least: int) -> None:
    """Give those with the same wider template that one, if there are enough of them."""
    counts = Counter(wider.values())
    for one, owner in owners.items():
        whole = wider.get(owner, owner)
        owners[one] = whole if counts[whole] >= least else owner


def _may_vary(template: Template, at: int) -> bool:
    others = sum(_is_fixed(word) for number, word in enumerate(template) if number != at)
    return at < len(template) and WORD not in template and others >= 2


def _is_fixed(word: str) -> bool:
    return not _MARK.search(word)


# -- patterns --------------------------------------------------------------------------------------------------------


def pattern_of(template: Template, samples: Collection[str] = ()) -> str:
    """A regular expression for `pattern` of a rule that finds the template in messages; "" if there is no good one.

    It finds every sample, has enough letters to be specific, and is plain ASCII: nothing in it can leave its quotes.
    """
    words = list(template)
    while words and _is_loose(words[0]):
        words.pop(0)
    while words and _is_loose(words[-1]):
        words.pop()
    text = " ".join(words)
    if sum(map(len, _LETTERS.findall(_MARK.sub(" ", text)))) < LETTERS_MIN:
        return ""
    variants = ("".join(_expression(each, marks) for each in text) for marks in (_EXPRESSIONS, _WIDER))
    return next((one for one in variants if all(is_found_safely(one, each) for each in samples)), "")


def _is_loose(word: str) -> bool:
    """Whether a word at either end of a pattern adds little: a mark with hardly anything around it."""
    return not _is_fixed(word) and len(_MARK.sub("", word)) < 3


def is_found_safely(pattern: str, message: str) -> bool:
    """Whether a rule with this pattern matches the message; never for a pattern that a file could not have."""
    try:
        refuse_unsearchable(pattern)
    except NotSearchable:
        return False
    return is_found(pattern, message)


def _expression(character: str, marks: Mapping[str, str]) -> str:
    if character in marks:
        return marks[character]
    if not (character.isascii() and character.isprintable()):
        return "."
    return _SPECIAL.sub(r"\\\g<0>", character)
