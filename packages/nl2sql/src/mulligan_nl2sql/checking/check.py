"""The check: from the text of a planner to SQL that may be executed.

Nothing of the text reaches a database. It is parsed, the tree is compared with lists of what is allowed, names are
resolved, a limit is added, and SQL is written from the tree. That SQL is parsed and looked at once more.
"""

from __future__ import annotations

import hashlib
import logging

import msgspec
from sqlglot import TokenType, exp, parse, tokenize
from sqlglot.errors import ParseError, SqlglotError

from mulligan_nl2sql.checking.allowed_functions import NAMES
from mulligan_nl2sql.checking.allowed_nodes import check_nodes
from mulligan_nl2sql.checking.generated_text import check_text
from mulligan_nl2sql.checking.names import resolve_columns, resolve_tables
from mulligan_nl2sql.checking.refusals import refuse
from mulligan_nl2sql.failures import Code, Position, QueryFailed, Stage
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.schema import Schema

# It warns of statements that it does not know; we refuse them.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

# Each doubles the time of the parser.
BARE_JOINS_MAX = 8
_POSITION = frozenset({"line", "col", "start", "end"})


class CheckedQuery(msgspec.Struct, frozen=True):
    """What may be executed."""

    sql: str
    dialect: str
    # With their schemas.
    tables: tuple[str, ...]
    # Names of the results, in order; no name twice.
    columns: tuple[str, ...]
    # The most rows that are returned; one more is asked for, to know whether there are more.
    rows_max: int
    # What the statement calls each table that it reads: pairs of an alias and a table with its schema.
    aliases: tuple[tuple[str, str], ...]
    # What it defines by WITH.
    defined: tuple[str, ...]
    # The same for statements that differ in spaces, comments, quotes and upper case alone.
    fingerprint: str


def check(text: str, schema: Schema, limits: Limits, *, functions: tuple[str, ...] = ()) -> CheckedQuery:
    """Check one statement against what may be read. QueryFailed if it is refused.

    `schema` is what the policy leaves; `functions` are names that it allows beyond those of every policy.
    """
    further = frozenset(name.lower() for name in functions)
    names = NAMES[schema.dialect] | further
    try:
        tree = _parse(text, schema.dialect, limits)
        check_nodes(tree, names, limits.nodes)
        tables = resolve_tables(tree, schema, limits.tables)
        tree = resolve_columns(tree, schema, tables)
        columns = _name_results(tree)
        tree = _with_limit(tree, limits.rows)
        # Resolving has changed the tree: what is executed is checked, not what was parsed.
        check_nodes(tree, names, 4 * limits.nodes)
        sql = tree.sql(dialect=schema.dialect, comments=False, identify=True)
    except RecursionError:
        raise refuse(Code.TOO_COMPLEX, "the statement is nested too deeply; write a simpler one") from None
    check_text(sql, schema.dialect, further)
    _check_again(sql, tree, schema.dialect)
    return CheckedQuery(
        sql=sql,
        dialect=schema.dialect,
        tables=tuple(table.full_name for table in tables),
        columns=columns,
        rows_max=limits.rows,
        aliases=tuple(
            (node.alias_or_name, f"{node.db}.{node.name}") for node in tree.find_all(exp.Table) if node.args.get("db")
        ),
        defined=tuple(node.alias for node in tree.find_all(exp.CTE)),
        fingerprint=hashlib.sha256(f"{schema.dialect}\n{sql}".encode()).hexdigest()[:32],
    )


def _parse(text: str, dialect: str, limits: Limits) -> exp.Query:
    if len(text) > limits.statement_chars:
        raise refuse(Code.TOO_COMPLEX, f"the statement has more than {limits.statement_chars} characters")
    if "\0" in text:
        raise refuse(Code.SYNTAX, "the statement has a NUL character")
    try:
        _refuse_bare_joins(text, dialect)
        trees = [tree for tree in parse(text, dialect=dialect) if tree is not None]
    except ParseError as error:
        raise _not_parsed(error) from None
    except SqlglotError as error:
        raise refuse(Code.SYNTAX, f"the statement cannot be read: {str(error).splitlines()[0]}") from None
    except (IndexError, KeyError, AttributeError, TypeError, ValueError):
        # A parser that stumbles has not understood the text: `show all` is enough in DuckDB's dialect.
        raise refuse(Code.SYNTAX, "the statement cannot be read; write a simpler one") from None
    trees = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    if not trees:
        raise refuse(Code.SYNTAX, "there is no statement")
    if len(trees) > 1:
        raise refuse(Code.MANY_STATEMENTS, f"there are {len(trees)} statements; exactly one may be executed", trees[1])
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        # Says which statement it is.
        check_nodes(tree, frozenset(), limits.nodes)
        raise refuse(Code.NOT_A_QUERY, "only SELECT may be executed", tree)
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    for node in tree.walk():
        # A comment may not say how its statement is to be read.
        node.comments = None
        for name in [name for name in node.meta if name not in _POSITION]:
            del node.meta[name]
    return tree


def _refuse_bare_joins(text: str, dialect: str) -> None:
    """Refuse a long row of joins without conditions: the parser reads the rest of it twice at each of them.

    Cross and natural joins never have one, and the parser knows.
    """
    in_a_row, last = 0, None
    for token in tokenize(text, read=dialect):
        if token.token_type is TokenType.JOIN:
            in_a_row += last not in (TokenType.CROSS, TokenType.NATURAL)
        elif token.token_type in (TokenType.ON, TokenType.USING):
            in_a_row = 0
        last = token.token_type
        if in_a_row > BARE_JOINS_MAX:
            raise refuse(Code.TOO_COMPLEX, f"more than {BARE_JOINS_MAX} joins in a row have no ON: write it after each")


def _not_parsed(error: ParseError) -> QueryFailed:
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or str(error).splitlines()[0]).rstrip(".")
    position = None
    if first.get("line") and first.get("col"):
        position = Position(line=int(first["line"]), column=max(1, int(first["col"])))
    near = str(first.get("highlight") or "")
    message = f"{description[:1].lower()}{description[1:]}{f' near {near!r}' if near else ''}"
    return QueryFailed(Code.SYNTAX, message, stage=Stage.CHECK, position=position)


def _name_results(tree: exp.Query) -> tuple[str, ...]:
    """Give each result a name of its own: a row is written as an object."""
    select: exp.Expr = tree
    while isinstance(select, (exp.SetOperation, exp.Subquery)):
        select = select.this
    names: list[str] = []
    for at, result in enumerate(select.expressions):
        if isinstance(result, exp.Star) or not result.alias_or_name:
            raise refuse(Code.UNSUPPORTED, "a result has no name: write 'as' and a name", result)
        name = result.alias_or_name
        if name in names:
            number = next(count for count in range(2, len(select.expressions) + 2) if f"{name}_{count}" not in names)
            name = f"{name}_{number}"
            select.expressions[at].set("alias", exp.to_identifier(name, quoted=True))
        names.append(name)
    return tuple(names)


def _with_limit(tree: exp.Query, rows: int) -> exp.Query:
    """Ask for one row more than may be returned, unless the statement asks for less."""
    limit = tree.args.get("limit")
    if limit is not None and int(limit.expression.this) <= rows:
        return tree
    tree.set("limit", exp.Limit(expression=exp.Literal.number(rows + 1)))
    return tree


def _check_again(sql: str, tree: exp.Query, dialect: str) -> None:
    """Read what was written: it must be one statement, and say the same."""
    try:
        again = parse(sql, dialect=dialect)
        is_same = len(again) == 1 and again[0] is not None
        is_same = is_same and again[0].sql(dialect=dialect, comments=False, identify=True) == sql  # type: ignore[union-attr]
    except (SqlglotError, RecursionError):
        is_same = False
    if not is_same:
        raise refuse(Code.UNSUPPORTED, "the statement cannot be written in one way; write a simpler one", tree)
