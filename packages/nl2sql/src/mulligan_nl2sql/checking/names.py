"""Which tables and columns a statement reads, and whether it may."""

from __future__ import annotations

import re
from difflib import get_close_matches

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

from mulligan_nl2sql.checking.refusals import refuse
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.schema import Schema, Table, fold_ascii

# Names of a database's own tables and views. A statement may not define one of them either.
_CATALOGUE = re.compile(
    r"(pg_|sqlite_|duckdb_|pragma_|dbstat|information_schema|_?pg_?toast|svv_|stl_|sys$)", re.IGNORECASE
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_TABLES_SHOWN_MAX = 20


def resolve_tables(tree: exp.Expr, schema: Schema, tables_max: int) -> list[Table]:
    """Write each table with its schema, and return those that are read. Refuses what may not be read."""
    defined = _defined_names(tree, schema)
    read: dict[str, Table] = {}
    nodes = list(tree.find_all(exp.Table))
    if len(nodes) > tables_max:
        raise refuse(Code.TOO_COMPLEX, f"the statement reads more than {tables_max} tables", nodes[tables_max])
    for node in nodes:
        name, owner = _compared(node.this, schema), _compared(node.args.get("db"), schema)
        if not owner and name in defined:
            continue
        table = schema.find(owner, name)
        if table is None:
            raise _unreadable(node, owner, name, schema)
        read[table.full_name] = table
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        node.set("this", exp.to_identifier(schema.fold(table.name), quoted=True))
        node.set("db", exp.to_identifier(schema.fold(table.schema), quoted=True))
    return list(read.values())


def _defined_names(tree: exp.Expr, schema: Schema) -> set[str]:
    """The names after WITH. None of them is the name of a table: so it is never a question which one is meant."""
    existing = set(schema.names())
    defined: set[str] = set()
    for node in tree.find_all(exp.CTE):
        name = _compared(node.args["alias"].this, schema) if node.args.get("alias") else ""
        if _CATALOGUE.match(name) or not _PLAIN.fullmatch(name):
            raise refuse(Code.TABLE_FORBIDDEN, f"'{name}' may not be defined by WITH", node)
        if name in existing or name in defined:
            what = "there is a table of this name" if name in existing else "it is defined twice"
            raise refuse(Code.UNSUPPORTED, f"WITH defines '{name}', but {what}: choose another name", node)
        defined.add(name)
    return defined


def _unreadable(node: exp.Table, owner: str, name: str, schema: Schema) -> QueryFailed:
    shown = f"{owner}.{name}" if owner else name
    is_own = _CATALOGUE.match(name) or (owner and _CATALOGUE.match(owner))
    is_file = not _PLAIN.fullmatch(name) and re.search(r"[/\\.:*?]", name)
    if is_own or is_file or schema.is_hidden(owner, name):
        reason = "it is a file" if is_file else "it is a catalogue" if is_own else "the policy does not allow it"
        return refuse(Code.TABLE_FORBIDDEN, f"the table '{shown}' may not be read: {reason}", node, table=shown)
    known = sorted(table.name for table in schema.tables)
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return refuse(
        Code.TABLE_UNKNOWN,
        f"there is no table '{shown}'{hint}",
        node,
        table=shown,
        known=known[:_TABLES_SHOWN_MAX],
    )


def _compared(node: exp.Expr | None, schema: Schema) -> str:
    """A name as the database compares it: PostgreSQL keeps the case of what stands in quotes."""
    if node is None:
        return ""
    name = str(node.this)
    is_exact = schema.dialect == "postgres" and isinstance(node, exp.Identifier) and node.quoted
    return name if is_exact else fold_ascii(name)


def resolve_columns(tree: exp.Query, schema: Schema, tables: list[Table]) -> exp.Query:
    """Write each column with its table and `*` as the columns that may be read. Refuses all others."""
    for name in tree.find_all(exp.Identifier):
        name.set("this", _compared(name, schema))
    _refuse_hidden_columns(tree, schema, tables)
    # Types are not needed, and types of users would have to be parsed.
    known = MappingSchema(dialect=schema.dialect, normalize=False)
    for table in tables:
        # In quotes: the library parses them, and a name such as "group by" is not one otherwise.
        names = [exp.to_identifier(schema.fold(column.name), quoted=True) for column in table.columns]
        columns = {name.sql(dialect=schema.dialect): "TEXT" for name in names}
        known.add_table(exp.table_(schema.fold(table.name), db=schema.fold(table.schema), quoted=True), columns)
    try:
        resolved = qualify(
            tree,
            # Names are folded already. The library would fold all letters of Unicode.
            dialect=f"{schema.dialect}, normalization_strategy=case_sensitive",
            schema=known,
            validate_qualify_columns=True,
        )
    except OptimizeError as error:
        raise _unresolved(error, tree, tables) from None
    except SqlglotError as error:
        raise refuse(Code.UNSUPPORTED, f"the columns cannot be resolved: {_first_line(error)}") from None
    _check_scopes(resolved, schema)
    return resolved


def _refuse_hidden_columns(tree: exp.Expr, schema: Schema, tables: list[Table]) -> None:
    """A column that exists and may not be read is a matter of security; one that does not exist is a mistake."""
    hidden = {schema.fold(name): table for table in tables for name in table.hidden_columns}
    readable = {schema.fold(column.name) for table in tables for column in table.columns}
    defined = {_compared(alias.args["alias"], schema) for alias in tree.find_all(exp.Alias)}
    aliases = {
        _compared(node.args["alias"].this, schema): _compared(node.this, schema)
        for node in tree.find_all(exp.Table)
        if node.args.get("alias")
    }
    for column in tree.find_all(exp.Column):
        name = _compared(column.this, schema) if isinstance(column.this, exp.Identifier) else ""
        if name not in hidden:
            continue
        owner = column.args.get("table")
        if owner is None:
            is_meant = name not in readable and name not in defined
        else:
            real = aliases.get(_compared(owner, schema), "")
            is_meant = any(
                schema.fold(table.name) == real and name in map(schema.fold, table.hidden_columns) for table in tables
            )
        if is_meant:
            raise refuse(
                Code.COLUMN_FORBIDDEN,
                f"the column '{hidden[name].name}.{name}' may not be read: the policy does not allow it",
                column,
                column=name,
            )


def _unresolved(error: OptimizeError, tree: exp.Expr, tables: list[Table]) -> QueryFailed:
    message = _first_line(error)
    found = re.search(r"'([^']+)'|: ([\w.]+)", message)
    name = (found[1] or found[2]).rpartition(".")[2] if found else ""
    node = next((one for one in tree.find_all(exp.Column) if str(one.name).lower() == name.lower()), None)
    owners = [table.name for table in tables if name.lower() in {column.name.lower() for column in table.columns}]
    if "mbiguous" in message or len(owners) > 1:
        return refuse(
            Code.COLUMN_AMBIGUOUS, f"several tables have a column '{name}': write which one", node, column=name
        )
    if not name:
        return refuse(Code.COLUMN_UNKNOWN, f"a column cannot be resolved: {message}", node)
    known = sorted({column.name for table in tables for column in table.columns})
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return refuse(Code.COLUMN_UNKNOWN, f"no table of the query has a column '{name}'{hint}", node, column=name)


def _check_scopes(tree: exp.Query, schema: Schema) -> None:
    """Look at each column once more, without trusting that they were resolved: it has a table, and the table has it."""
    scopes = traverse_scope(tree)
    seen: set[int] = set()
    for scope in scopes:
        for column in scope.find_all(exp.Column):
            seen.add(id(column))
            _check_column(column, scope, schema)
        for table in scope.find_all(exp.Table):
            seen.add(id(table))
            source = scope.sources.get(table.alias_or_name)
            if not table.args.get("db") and not isinstance(source, Scope):
                raise refuse(Code.TABLE_UNKNOWN, f"there is no table '{table.name}'", table, table=table.name)
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            raise refuse(Code.UNSUPPORTED, "'*' stands where it cannot be written out", star)
    missed = next((node for node in tree.find_all(exp.Column, exp.Table) if id(node) not in seen), None)
    if missed is not None:
        raise refuse(Code.UNSUPPORTED, f"'{missed.name}' stands where it cannot be checked", missed)


def _check_column(column: exp.Column, scope: Scope, schema: Schema) -> None:
    if not isinstance(column.this, exp.Identifier):
        raise refuse(Code.UNSUPPORTED, "'*' stands where it cannot be written out", column)
    owner = column.table
    if not owner:
        # What an ORDER BY sorts by may be the name of a result, but not a part of an expression: there, PostgreSQL
        # looks among the columns of the table, also the hidden ones.
        is_result = column.name in _results(scope)
        if is_result and isinstance(column.parent, exp.Ordered) and isinstance(column.parent.parent, exp.Order):
            return
        raise refuse(Code.COLUMN_UNKNOWN, f"it is not clear which table the column '{column.name}' is of", column)
    source = _source(scope, owner)
    if isinstance(source, exp.Table):
        table = schema.find(source.db, source.name)
        if table is not None and column.name in {schema.fold(one.name) for one in table.columns}:
            return
    elif source is not None and column.name in _results(source):
        return
    raise refuse(Code.COLUMN_UNKNOWN, f"'{owner}' has no column '{column.name}'", column, column=column.name)


def _results(scope: Scope) -> list[str]:
    query = scope.expression
    return query.named_selects if isinstance(query, exp.Query) else []


def _source(scope: Scope | None, name: str) -> exp.Table | Scope | None:
    """The nearest source of this name: a subquery may refer to the query around it."""
    while scope is not None:
        if name in scope.selected_sources:
            return scope.selected_sources[name][1]
        scope = scope.parent
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].split(". Line")[0]
