"""What may be read, from a file that a person wrote.

    [databases.shop]
    tables = ["customers", "orders"]      # every table if left out
    hidden = ["customers.email"]          # tables and columns that may not be read
    schemas = ["public", "sales"]         # PostgreSQL and DuckDB: the search path if left out
    functions = ["replace"]               # beyond those that are allowed anyway

    [databases.shop.columns]
    customers = ["id", "city"]            # every column if left out

    [databases.shop.limits]
    seconds = 5

`[databases."*"]` is for databases that have no section of their own. A database without one is refused.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path

import msgspec

from mulligan_nl2sql.failures import Code, QueryFailed, Stage
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.schema import Schema, Table

OTHERS = "*"
_FILE_BYTES_MAX = 1 << 20


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be read of one database. Without a policy: every table of the search path."""

    tables: tuple[str, ...] | None = None
    columns: dict[str, tuple[str, ...]] = {}
    hidden: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    # PostgreSQL: execute although the role could write. Its transaction stays read-only.
    allow_writing_role: bool = False
    limits: Limits = Limits()

    @property
    def is_restricted(self) -> bool:
        return self.tables is not None or bool(self.columns or self.hidden)

    def apply(self, schema: Schema) -> Schema:
        """Leave out what may not be read. A name in the policy that the database does not have is an error."""
        tables = [*schema.tables]
        listed = None if self.tables is None else {_find(schema, name).full_name for name in self.tables}
        columns = {_find(schema, name).full_name: names for name, names in self.columns.items()}
        hidden_tables, hidden_columns = self._hidden(schema)
        readable, hidden = [], [*schema.hidden]
        for table in tables:
            # A view reads tables that this policy may hide, so it must be named if there is a policy.
            is_listed = table.full_name in listed if listed is not None else not (table.is_view and self.is_restricted)
            if not is_listed or table.full_name in hidden_tables:
                hidden.append(table.full_name)
                continue
            readable.append(
                _with_columns(schema, table, columns.get(table.full_name), hidden_columns.get(table.full_name, set()))
            )
        # Of a table without a column that may be read, not even its rows may be counted.
        hidden += [table.full_name for table in readable if not table.columns]
        kept = {table.full_name: table for table in readable if table.columns}
        return msgspec.structs.replace(
            schema, tables=tuple(_with_keys(table, kept) for table in kept.values()), hidden=tuple(hidden)
        )

    def _hidden(self, schema: Schema) -> tuple[set[str], dict[str, set[str]]]:
        """Each entry of `hidden` is a table, or a table and one of its columns."""
        tables: set[str] = set()
        columns: dict[str, set[str]] = {}
        for entry in self.hidden:
            if (table := _lookup(schema, entry)) is not None:
                tables.add(table.full_name)
                continue
            owner, _, column = entry.rpartition(".")
            table = _find(schema, owner or entry)
            columns.setdefault(table.full_name, set()).add(_column(schema, table, column))
        return tables, columns


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy file: one section for each database."""

    databases: dict[str, Policy] = {}

    def for_database(self, name: str) -> Policy:
        if (policy := self.databases.get(name) or self.databases.get(OTHERS)) is not None:
            return policy
        raise _invalid(
            f"the policy file has no section for the database '{name}': add [databases.{name}] to let it be read"
        )


def read_policies(path: Path) -> Policies:
    """Read a policy file."""
    try:
        text = path.read_bytes()[: _FILE_BYTES_MAX + 1]
        if len(text) > _FILE_BYTES_MAX:
            raise _invalid(f"{path}: a policy file has at most {_FILE_BYTES_MAX} bytes")
        return msgspec.convert(tomllib.loads(text.decode()), Policies)
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise _invalid(f"{path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise _invalid(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise _invalid(f"{path} is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _invalid(f"{path}: {describe_invalid(error)}") from None


def describe_invalid(error: msgspec.ValidationError) -> str:
    """Return the sentence of msgspec, with a path as it stands in the file."""
    problem, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`").lstrip(".").replace("[...]", ".*")
    problem = (
        problem.replace("Object contains unknown field `", "unknown key '").replace(" | null", "").replace("`", "'")
    )
    unknown = problem.partition("unknown key '")[2].rstrip("'")
    keys = Limits if place.endswith(".limits") else Policy if place else Policies
    near = _near(unknown, [*keys.__struct_fields__])
    return f"{problem[:1].lower()}{problem[1:]}{f' in {place}' if place else ''}{near if unknown else ''}"


def _with_columns(schema: Schema, table: Table, listed: tuple[str, ...] | None, hidden: set[str]) -> Table:
    """A generated column may be calculated from a hidden one, so it must be named if one is hidden."""
    names = {_column(schema, table, name) for name in listed} if listed is not None else None
    kept = [
        one
        for one in table.columns
        if one.name not in hidden and (one.name in names if names is not None else not (one.is_generated and hidden))
    ]
    left_out = [one.name for one in table.columns if one not in kept]
    return msgspec.structs.replace(table, columns=tuple(kept), hidden_columns=(*table.hidden_columns, *left_out))


def _with_keys(table: Table, kept: dict[str, Table]) -> Table:
    """Keys that name nothing hidden."""
    columns = {one.name for one in table.columns}
    foreign_keys = []
    for key in table.foreign_keys:
        other = kept.get(f"{key.to_schema}.{key.to_table}")
        others = {one.name for one in other.columns} if other is not None else set()
        if other is not None and columns.issuperset(key.columns) and others.issuperset(key.to_columns):
            foreign_keys.append(key)
    primary_key = table.primary_key if columns.issuperset(table.primary_key) else ()
    return msgspec.structs.replace(table, foreign_keys=tuple(foreign_keys), primary_key=primary_key)


def _lookup(schema: Schema, name: str) -> Table | None:
    """A table by `name` or `schema.name`."""
    owner, _, last = name.rpartition(".")
    return schema.find("", name) or (schema.find(owner, last) if owner else None)


def _find(schema: Schema, name: str) -> Table:
    if (table := _lookup(schema, name)) is not None:
        return table
    known = [table.name for table in schema.tables] + [table.full_name for table in schema.tables]
    raise _invalid(f"the policy names the table '{name}', which the database does not have{_near(name, known)}")


def _column(schema: Schema, table: Table, name: str) -> str:
    for column in table.columns:
        if schema.fold(column.name) == schema.fold(name):
            return column.name
    known = [column.name for column in table.columns]
    raise _invalid(
        f"the policy names the column '{table.name}.{name}', which the database does not have{_near(name, known)}"
    )


def _near(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _invalid(message: str) -> QueryFailed:
    return QueryFailed(Code.POLICY_INVALID, message, stage=Stage.SCHEMA)
