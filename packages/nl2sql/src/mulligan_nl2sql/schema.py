"""What a database holds, as far as it may be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

# Longer texts are no names of a kind or a place.
VALUE_CHARS_MAX = 60


# SQLite and DuckDB take 'A' for 'a', and 'Ä' not for 'ä'.
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold_ascii(name: str) -> str:
    """The name with the letters A to Z in lower case, and no others."""
    return name.translate(_ASCII_LOWER)


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    # As the database writes it.
    type: str = ""
    is_nullable: bool = True
    comment: str = ""
    # Distinct values, if the column has few; empty otherwise.
    values: tuple[str, ...] = ()
    # Calculated from other columns, whatever a policy says of those.
    is_generated: bool = False

    def with_values(self, values: Iterable[str], count_max: int) -> Column:
        """The column with these values, or with none if they are many or long."""
        ordered = sorted(values)
        is_short = len(ordered) <= count_max and all(len(value) <= VALUE_CHARS_MAX for value in ordered)
        return msgspec.structs.replace(self, values=tuple(ordered) if is_short else ())


class ForeignKey(msgspec.Struct, frozen=True):
    """`columns` refer to `to_columns` of another table, in this order."""

    columns: tuple[str, ...]
    to_schema: str
    to_table: str
    to_columns: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    # `main` in SQLite and usually in DuckDB, `public` and others in PostgreSQL.
    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str = ""
    is_view: bool = False
    # An estimate; -1 if it is not known.
    rows: int = -1
    # Columns that exist and may not be read.
    hidden_columns: tuple[str, ...] = ()

    def with_columns(self, columns: Iterable[Column]) -> Table:
        return msgspec.structs.replace(self, columns=tuple(columns))

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tables that may be read. `hidden` names those that exist and may not: no planner is shown them."""

    dialect: str
    tables: tuple[Table, ...]
    # Where a table without a schema is looked for, in this order.
    default_schemas: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def with_values_of(self, tables: Iterable[Table]) -> Schema:
        """The same tables, with the values of the columns of these."""
        known = {(table.full_name, column.name): column for table in tables for column in table.columns}
        return msgspec.structs.replace(
            self,
            tables=tuple(
                table.with_columns(known.get((table.full_name, column.name), column) for column in table.columns)
                for table in self.tables
            ),
        )

    def fold(self, name: str) -> str:
        """A name as the database compares it, if it stands in quotes."""
        return name if self.dialect == "postgres" else fold_ascii(name)

    def find(self, schema: str, name: str) -> Table | None:
        """The table of this name; without a schema, the first of the default schemas that has it."""
        wanted = [schema] if schema else list(self.default_schemas)
        for one in wanted:
            for table in self.tables:
                if self.fold(table.schema) == self.fold(one) and self.fold(table.name) == self.fold(name):
                    return table
        return None

    def is_hidden(self, schema: str, name: str) -> bool:
        wanted = [schema] if schema else list(self.default_schemas)
        hidden = {self.fold(one) for one in self.hidden}
        return any(self.fold(f"{one}.{name}") in hidden for one in wanted)

    def names(self) -> Iterator[str]:
        """The names of all tables that exist, without their schemas, as the database compares them."""
        for table in self.tables:
            yield self.fold(table.name)
        for hidden in self.hidden:
            yield self.fold(hidden.partition(".")[2])
