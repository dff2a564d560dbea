"""A question as words, numbers, dates, quoted texts and marks."""

from __future__ import annotations

import re

import msgspec

# Digits of other scripts are no numbers: SQL does not know them.
_PATTERN = re.compile(
    r"""
      (?P<quoted> "[^"]*" | \u201c[^\u201d]*\u201d | (?<!\w)'[^']*'(?!\w) )
    | (?P<date> (?<![\w.-])[0-9]{4}-[0-9]{2}-[0-9]{2}(?![\w-]) )
    | (?P<number> (?<![\w.,])-?[0-9]+(?:[.,][0-9]+)*(?![\w]) )
    | (?P<word> \w+(?:['\u2019]\w+|(?<=s)['\u2019](?!\w))? )
    | (?P<mark> >=|<=|<>|!=|\S )
    """,
    re.VERBOSE,
)
_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_PLAIN = re.compile(r"-?\d+(\.\d+)?")
# 1.000 is a thousand to one half of the world, and one to the other.
_UNCLEAR = re.compile(r"-?\d{1,3}\.\d{3}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CONTRACTIONS = {"what's": ("what", "is"), "who's": ("who", "is")}
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()


class Token(msgspec.Struct, frozen=True):
    """`lower` is what rules compare; for a number it is the number as SQL writes it."""

    text: str
    lower: str
    # word, number, date, quoted or mark
    kind: str


def tokenize(question: str) -> tuple[Token, ...]:
    """The tokens of a question, without the mark at its end."""
    tokens: list[Token] = []
    for found in _PATTERN.finditer(_joined(question)):
        text = found[0]
        match found.lastgroup:
            case "quoted":
                tokens.append(Token(text, text[1:-1], "quoted"))
            case "date":
                tokens.append(Token(text, text, "date"))
            case "number":
                tokens.append(_number(text))
            case "word":
                tokens.extend(_words(text))
            case _:
                tokens.append(Token(text, text, "mark"))
    while tokens and tokens[-1].lower in ("?", ".", "!") and tokens[-1].kind == "mark":
        tokens.pop()
    return tuple(tokens)


def number_word(token: Token) -> str | None:
    """The number that a token means, as SQL writes it."""
    if token.kind == "number":
        return token.lower
    return str(_NUMBER_WORDS.index(token.lower)) if token.lower in _NUMBER_WORDS else None


def split_name(name: str) -> list[str]:
    """The words of a name such as `order_items`, `orderItems` or `order-items`."""
    return [word for part in re.findall(r"[^\W_]+", name) for word in _HUMP.split(part)]


def _joined(question: str) -> str:
    # A word that everybody writes in two ways.
    return re.sub(r"\b([Ee])-(mails?)\b", r"\1\2", question)


def _number(text: str) -> Token:
    if _GROUPED.fullmatch(text):
        return Token(text, text.replace(",", ""), "number")
    if _PLAIN.fullmatch(text) and not _UNCLEAR.fullmatch(text):
        return Token(text, text, "number")
    return Token(text, text, "mark")


def _words(text: str) -> list[Token]:
    plain = text.replace("\u2019", "'")
    lower = plain.lower()
    if lower in _CONTRACTIONS:
        first, second = _CONTRACTIONS[lower]
        return [Token(plain[: len(first)], first, "word"), Token(plain[len(first) :], second, "word")]
    if lower.endswith("n't"):
        return [Token(plain[:-3], lower[:-3], "word"), Token(plain[-3:], "not", "word")]
    # A possessive.
    plain = plain.removesuffix("'s").removesuffix("'S").removesuffix("'")
    return [Token(word, word.lower(), "word") for word in split_name(plain)]
