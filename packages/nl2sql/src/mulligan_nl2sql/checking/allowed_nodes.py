"""The kinds of nodes that a query may be made of, and which of their parts may be set.

An allow-list: a kind that a newer version of the parser adds, and a part that it adds to a known kind, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from mulligan_nl2sql.checking import allowed_functions
from mulligan_nl2sql.checking.refusals import refuse
from mulligan_nl2sql.failures import Code, QueryFailed

_QUERY = "with_ order limit offset"
# The kinds that are no functions, each with the parts that may be set.
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    kind: frozenset(parts.split())
    for kind, parts in {
        exp.Select: f"{_QUERY} expressions from_ joins where group having distinct windows qualify",
        exp.Union: f"{_QUERY} this expression distinct",
        exp.Intersect: f"{_QUERY} this expression distinct",
        exp.Except: f"{_QUERY} this expression distinct",
        exp.Subquery: f"{_QUERY} this alias",
        exp.With: "expressions",
        exp.CTE: "this alias materialized",
        exp.From: "this",
        exp.Join: "this on using side kind method",
        exp.Table: "this db alias",
        exp.TableAlias: "this columns",
        exp.Where: "this",
        exp.Group: "expressions",
        exp.Having: "this",
        exp.Qualify: "this",
        exp.Order: "this expressions",
        exp.Ordered: "this desc nulls_first",
        exp.Limit: "expression",
        exp.Offset: "expression",
        exp.Distinct: "expressions",
        exp.Alias: "this alias",
        exp.Column: "this table",
        exp.Identifier: "this quoted",
        exp.Star: "",
        exp.Literal: "this is_string",
        exp.Boolean: "this",
        exp.Null: "",
        exp.Paren: "this",
        exp.Tuple: "expressions",
        exp.Var: "this",
        exp.DataType: "this expressions nested",
        exp.DataTypeParam: "this",
        exp.Interval: "this unit",
        exp.AtTimeZone: "this zone",
        exp.Collate: "this expression",
        exp.Window: "this partition_by order spec over alias",
        exp.WindowSpec: "kind start start_side end end_side exclude",
        exp.Filter: "this expression",
        exp.WithinGroup: "this expression",
        exp.IgnoreNulls: "this",
        exp.Not: "this",
        exp.Neg: "this",
        exp.In: "this expressions query",
        exp.Between: "this low high",
        exp.Escape: "this expression",
    }.items()
}
_BINARY: frozenset[type[exp.Expr]] = frozenset(
    {
        *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ),
        *(exp.Like, exp.ILike, exp.Glob, exp.DPipe),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod),
    }
)
_FUNCTION_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe", "requires_string"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
}
_WRITES = (
    *(exp.DML, exp.DDL, exp.Into, exp.Lock, exp.Command, exp.Copy, exp.Drop, exp.Alter, exp.Set, exp.Pragma),
    *(exp.Attach, exp.Detach, exp.Use, exp.Transaction, exp.Commit, exp.Rollback, exp.Kill, exp.Analyze),
    *(exp.TruncateTable, exp.Comment, exp.Grant, exp.Revoke, exp.Install, exp.Execute, exp.Returning, exp.Merge),
)
_TYPES = frozenset(
    "TEXT VARCHAR CHAR INT BIGINT SMALLINT TINYINT FLOAT DOUBLE DECIMAL BOOLEAN DATE TIME TIMESTAMP TIMESTAMPTZ "
    "INTERVAL DATETIME UUID".split()
)
_JOIN_KINDS = frozenset({"", "INNER", "OUTER", "CROSS"})
_JOIN_SIDES = frozenset({"", "LEFT", "RIGHT", "FULL"})
_UNITS = frozenset(
    "YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND YEARS QUARTERS MONTHS WEEKS DAYS HOURS MINUTES SECONDS DECADE "
    "CENTURY DOW ISODOW DOY ISOYEAR EPOCH DAYOFWEEK DAYOFYEAR WEEKDAY".split()
)
_COLLATIONS = frozenset({"NOCASE", "BINARY", "RTRIM"})


def check_nodes(tree: exp.Expr, functions: frozenset[str], nodes_max: int) -> None:
    """Refuse a tree with a node, or a part of one, that is not on the lists. `functions` are further names."""
    first: QueryFailed | None = None
    for count, node in enumerate(tree.walk()):
        if count >= nodes_max:
            raise refuse(Code.TOO_COMPLEX, f"the statement has more than {nodes_max} parts; write a simpler one", node)
        for problem in _problems(node, functions):
            # A call of `pg_sleep` is more than the unknown node that it stands in.
            if problem.is_security:
                raise problem
            first = first or problem
    if first is not None:
        raise first


def _problems(node: exp.Expr, functions: frozenset[str]) -> Iterator[QueryFailed]:
    kind = type(node)
    if kind in _PARTS:
        yield from _unknown_parts(node, _PARTS[kind])
        yield from _wrong_values(node)
    elif kind in _BINARY:
        yield from _unknown_parts(node, frozenset({"this", "expression", "typed", "safe", "negate"}))
    elif kind is exp.Anonymous or isinstance(node, exp.Func):
        yield from _unknown_parts(node, _FUNCTION_PARTS.get(kind, frozenset(node.arg_types)))
        yield from _unknown_function(node, functions)
    elif isinstance(node, _WRITES):
        yield refuse(Code.NOT_A_QUERY, f"'{_words(node)}' is no query; only SELECT may be executed", node)
    else:
        yield refuse(Code.UNSUPPORTED, f"'{_words(node)}' may not be used in a query", node)


def _unknown_parts(node: exp.Expr, allowed: frozenset[str]) -> Iterator[QueryFailed]:
    for name, value in node.args.items():
        if name in allowed or value is None or value is False or value == []:
            continue
        inner = value[0] if isinstance(value, list) else value
        if isinstance(inner, _WRITES):
            yield refuse(Code.NOT_A_QUERY, f"'{_words(inner)}' is no query; only SELECT may be executed", node)
        yield refuse(Code.UNSUPPORTED, f"'{name.rstrip('_')}' of '{_words(node)}' may not be used in a query", node)


def _unknown_function(node: exp.Expr, functions: frozenset[str]) -> Iterator[QueryFailed]:
    """A function that the parser does not know is an `Anonymous` with a name; `functions` has all names."""
    if isinstance(node, exp.Anonymous):
        name = node.name
        # A name in quotes is an Identifier, and no function that planners call has one.
        if isinstance(node.this, str) and name.lower() in functions:
            return
    else:
        if type(node) in allowed_functions.KINDS or functions.intersection(map(str.lower, _names_of(node))):
            return
        name = _names_of(node)[0]
    if allowed_functions.is_dangerous(name):
        yield refuse(Code.FUNCTION_FORBIDDEN, f"the function '{name.lower()}' may not be called", node)
    yield refuse(Code.FUNCTION_UNKNOWN, f"the function '{name.lower()}' is not one that may be called", node)


def _names_of(node: exp.Expr) -> list[str]:
    names = node.sql_names() if isinstance(node, exp.Func) else []
    return names or [type(node).__name__]


def _wrong_values(node: exp.Expr) -> Iterator[QueryFailed]:
    """Parts whose value is a word."""
    if isinstance(node, exp.Join):
        kind, side, method = node.kind.upper(), node.side.upper(), str(node.args.get("method") or "").upper()
        if kind not in _JOIN_KINDS or side not in _JOIN_SIDES or method not in ("", "NATURAL"):
            yield refuse(Code.UNSUPPORTED, f"a join of the kind '{method or kind}' may not be used", node)
    elif isinstance(node, exp.DataType):
        name = getattr(node.this, "value", str(node.this))
        if name not in _TYPES or node.args.get("nested"):
            yield refuse(Code.UNSUPPORTED, f"the type '{str(name).lower()}' may not be used in a cast", node)
    elif isinstance(node, exp.Var):
        allowed = _COLLATIONS if isinstance(node.parent, exp.Collate) else _UNITS
        if str(node.this).upper() not in allowed:
            yield refuse(Code.UNSUPPORTED, f"the word '{node.this}' may not be used here", node)
    elif isinstance(node, (exp.Limit, exp.Offset)):
        value = node.expression
        if not (isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdigit()):
            yield refuse(Code.UNSUPPORTED, "LIMIT and OFFSET take a number", node)
    elif isinstance(node, exp.Collate) and not isinstance(node.expression, exp.Var):
        yield refuse(Code.UNSUPPORTED, "this collation may not be used", node)
    elif isinstance(node, exp.Literal) and "\0" in str(node.this):
        yield refuse(Code.SYNTAX, "a text may not have a NUL character", node)
    elif isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        # A function in the place of a table.
        yield from _table_function(node)
    elif isinstance(node, exp.Table) and node.args.get("alias") and node.args["alias"].args.get("columns"):
        # `customers as c (a, b)` counts the columns of the table itself, also the hidden ones.
        yield refuse(
            Code.UNSUPPORTED, "the columns of a table may not be renamed after its name: use 'as' for each", node
        )
    elif isinstance(node, exp.Star) and not isinstance(node.parent, (exp.Select, exp.Count, exp.Column)):
        yield refuse(Code.UNSUPPORTED, "'*' may not be used here", node)


def _table_function(node: exp.Table) -> Iterator[QueryFailed]:
    called = node.this
    name = str(called.this) if isinstance(called, exp.Anonymous) else _names_of(called)[0]
    code = Code.FUNCTION_FORBIDDEN if allowed_functions.is_dangerous(name) else Code.UNSUPPORTED
    yield refuse(code, f"the function '{name.lower()}' may not be used as a table", called)


def _words(node: object) -> str:
    """What a person calls this kind of node."""
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    name = type(node).__name__
    return "".join(f" {letter}" if letter.isupper() and at else letter for at, letter in enumerate(name)).upper()
