"""English words in the form in which they are compared. The same is done to words of questions and of schemas."""

from __future__ import annotations

from functools import lru_cache

from mulligan_nl2sql.planning.rules.tokens import split_name

_IRREGULAR = {
    "people": "person",
    "children": "child",
    "men": "man",
    "women": "woman",
    "indices": "index",
    "data": "data",
}
# Words that end in s and have no singular, or another one.
_UNCHANGED = frozenset(
    "news series species lens bus gas plus less this has was is its does status address access process business class "
    "bonus campus sales goods always previous various is_".split()
)
_PAST = {
    **{"paid": "pay", "sent": "send", "sold": "sell", "bought": "buy", "written": "write", "made": "make"},
    **{"given": "give", "taken": "take", "held": "hold", "begun": "begin", "built": "build", "left": "leave"},
    **{"lent": "lend", "spent": "spend", "shipped": "ship", "cancelled": "cancel"},
}
_ES = ("ches", "shes", "sses", "xes", "zes", "uses")
_SHORTEST = 3


def singular(word: str) -> str:
    """The singular of a word in lower case."""
    if word in _UNCHANGED or len(word) <= _SHORTEST:
        return "id" if word == "ids" else word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(_ES):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def is_plural(word: str) -> bool:
    return singular(word) != word


@lru_cache(maxsize=4096)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name or of a text, in the form in which they are compared."""
    return tuple(singular(word.lower()) for word in split_name(name))


def stem(word: str) -> str:
    """What a past participle and its noun have in common: ordered, order."""
    if word in _PAST:
        return _PAST[word]
    if word.endswith("ied"):
        return f"{word[:-3]}y"
    if word.endswith("ed"):
        return word[:-2]
    return word


def is_participle(word: str) -> bool:
    return word in _PAST or word.endswith("ed")


def same_event(word: str, noun: str) -> bool:
    """Whether a word of a column names what a table records: `ordered` and `order`, `paid` and `payment`."""
    short = stem(word)
    return len(short) >= _SHORTEST and (noun.startswith(short) or short.startswith(noun))
