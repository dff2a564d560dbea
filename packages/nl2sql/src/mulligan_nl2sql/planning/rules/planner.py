"""The door of the rules: a question and a schema in, SQL or a refusal out. Nothing is read, sent or remembered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from sqlglot import exp

from mulligan_nl2sql.planning.planner import Explanation, Plan, PlanRequest, Refusal, RefusalReason
from mulligan_nl2sql.planning.rules import vocabulary
from mulligan_nl2sql.planning.rules.joins import Joins
from mulligan_nl2sql.planning.rules.lexicon import Lexicon, unit_words
from mulligan_nl2sql.planning.rules.meaning import Meaning
from mulligan_nl2sql.planning.rules.periods import WORDS as PERIOD_WORDS
from mulligan_nl2sql.planning.rules.phrases import Question, Span
from mulligan_nl2sql.planning.rules.problems import Ambiguous, Problem, Unclear
from mulligan_nl2sql.planning.rules.questions import Questions
from mulligan_nl2sql.planning.rules.statements import statement
from mulligan_nl2sql.planning.rules.terminals import TooManyReadings
from mulligan_nl2sql.planning.rules.tokens import Token, number_word, tokenize
from mulligan_nl2sql.planning.rules.word_forms import singular
from mulligan_nl2sql.schema import Schema

NAME = "rules"
_CHARS_MAX = 500
_TOKENS_MAX = 60
_CANDIDATES_MAX = 6
_SHOWN_MAX = 100
_WORDS = vocabulary.all_words() | PERIOD_WORDS


class RulesPlanner:
    """The planner `rules`. It understands English questions alone."""

    name = NAME

    def plan(self, request: PlanRequest) -> Plan | Refusal:
        """The one statement that the question means. It has no second one, so a repair gets the same."""
        return plan(request.question, request.schema, request.today)


def plan(question: str, schema: Schema, today: date) -> Plan | Refusal:
    """SQL in the dialect of the schema, with a proof: what explains each word. Otherwise a refusal that names words."""
    tokens = tokenize(question) if len(question) <= _CHARS_MAX else ()
    if not tokens or len(tokens) > _TOKENS_MAX:
        problem = "the question is too long for the rules" if question.strip() else "the question is empty"
        if question.strip() and len(question) <= _CHARS_MAX and not tokens:
            problem = "the question has no words"
        return Refusal(NAME, RefusalReason.NOT_UNDERSTOOD, problem, (question[:40],) if question.strip() else ())
    lexicon = Lexicon(schema)
    if unknown := tuple(dict.fromkeys(token.text for token in tokens if not _is_known(token, lexicon))):
        return Refusal(NAME, RefusalReason.UNKNOWN_WORDS, f"not explained by the schema: {_quoted(unknown)}", unknown)
    reader = Questions(tokens, lexicon, today)
    try:
        readings = reader.read()
    except TooManyReadings:
        return Refusal(NAME, RefusalReason.AMBIGUOUS, "the question can be read in too many ways", _texts(tokens))
    if not readings:
        return _not_read(tokens, reader.furthest)
    return _decide(readings, tokens, lexicon, Joins(schema))


def _decide(readings: list[Question], tokens: tuple[Token, ...], lexicon: Lexicon, joins: Joins) -> Plan | Refusal:
    """The answer, if all readings that mean something mean the same."""
    found: dict[str, Plan] = {}
    problems: list[Problem] = []
    for reading in readings:
        meaning = Meaning(lexicon, joins, tokens)
        try:
            query = meaning.of(reading)
        except Problem as problem:
            problems.append(problem)
            continue
        tree = statement(query, lexicon.schema)
        sql = tree.sql(dialect=lexicon.schema.dialect)
        found.setdefault(sql, Plan(NAME, sql, tuple(_proof(tokens, meaning.columns.explained)), _tables(tree)))
    ambiguous = [problem for problem in problems if isinstance(problem, Ambiguous)]
    if ambiguous:
        return _refused(ambiguous[0], tokens)
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        message = f"the question can be read in several ways: {_differences(list(found)[:_CANDIDATES_MAX])}"
        return Refusal(NAME, RefusalReason.AMBIGUOUS, message, _texts(tokens), tuple(found)[:_CANDIDATES_MAX])
    return _refused(max(problems, key=_precision), tokens)


def _differences(statements: list[str]) -> str:
    """Where statements begin to differ, each from there on."""
    first, last = min(statements), max(statements)
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    same = first[:length].rfind(" ") + 1
    rests = [one[same:] or "nothing more" for one in statements]
    return "; or: ".join(one if len(one) <= _SHOWN_MAX else f"{one[:_SHOWN_MAX]}…" for one in rests)


def _precision(problem: Problem) -> tuple[bool, bool, bool]:
    """A problem with candidates says most; then one that names words."""
    return isinstance(problem, Unclear), not problem.is_general, problem.span[1] > problem.span[0]


def _refused(problem: Problem, tokens: tuple[Token, ...]) -> Refusal:
    first, end = problem.span
    words = _texts(tokens[first:end]) or _texts(tokens)
    message = f"{_quoted((' '.join(words),))}: {problem.message}"
    if isinstance(problem, Unclear):
        candidates = problem.candidates[:_CANDIDATES_MAX]
        return Refusal(NAME, RefusalReason.AMBIGUOUS, f"{message}: {', '.join(candidates)}", words, candidates)
    return Refusal(NAME, RefusalReason.NOT_UNDERSTOOD, message, words)


def _not_read(tokens: tuple[Token, ...], furthest: int) -> Refusal:
    rest = _texts(tokens[furthest:])
    before = _texts(tokens[max(furthest - 3, 0) : furthest])
    if not rest:
        whole = _texts(tokens)
        return Refusal(NAME, RefusalReason.NOT_UNDERSTOOD, "the rules do not know a question of this form", whole)
    place = f" after {_quoted((' '.join(before),))}" if before else ""
    message = f"the rules do not understand {_quoted((' '.join(rest),))}{place}"
    return Refusal(NAME, RefusalReason.NOT_UNDERSTOOD, message, rest)


def _is_known(token: Token, lexicon: Lexicon) -> bool:
    if token.kind in ("number", "date", "quoted") or token.lower in _WORDS or number_word(token) is not None:
        return True
    if token.kind == "mark":
        return any(words in lexicon.units for words in unit_words(token)) or lexicon.is_value_word(token.lower)
    return lexicon.knows(singular(token.lower)) or lexicon.is_value_word(token.lower)


def _proof(tokens: tuple[Token, ...], explained: dict[Span, str]) -> Iterator[Explanation]:
    """What explains each word. A word without a phrase of its own was read by a rule of the grammar."""
    at = 0
    while at < len(tokens):
        covering = [span for span in explained if span[0] <= at < span[1]]
        span = min(covering, key=lambda one: one[1] - one[0], default=(at, at + 1))
        meaning = explained[span] if covering else vocabulary.meaning_of(tokens[at].lower)
        # A shorter phrase may stand within a longer one.
        end = min([span[1], *(other[0] for other in explained if at < other[0] < span[1])])
        yield Explanation(" ".join(_texts(tokens[at:end])), meaning)
        at = end


def _tables(tree: exp.Select) -> tuple[str, ...]:
    names = (table.name for table in tree.find_all(exp.Table) if table.name != "counted")
    return tuple(dict.fromkeys(names))


def _texts(tokens: tuple[Token, ...]) -> tuple[str, ...]:
    return tuple(token.text for token in tokens)


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)
