"""The policy: what it leaves of a schema, and what is said about a file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.policy import Policy, read_policies
from mulligan_nl2sql.schema import Column, ForeignKey, Schema, Table

SCHEMA = Schema(
    "postgres",
    (
        Table("public", "customers", (Column("id"), Column("city"), Column("email")), primary_key=("id",)),
        Table(
            "public",
            "orders",
            (Column("id"), Column("customer_id")),
            foreign_keys=(ForeignKey(("customer_id",), "public", "customers", ("id",)),),
        ),
        Table("sales", "targets", (Column("id"),)),
        Table("public", "totals", (Column("n"),), is_view=True),
    ),
    ("public", "sales"),
)


def names(schema: Schema) -> list[str]:
    return [table.full_name for table in schema.tables]


def test_without_a_policy_everything_may_be_read() -> None:
    assert Policy().apply(SCHEMA) == SCHEMA


def test_what_is_not_listed_is_hidden_and_named_as_such() -> None:
    schema = Policy(tables=("customers", "sales.targets")).apply(SCHEMA)

    assert names(schema) == ["public.customers", "sales.targets"]
    assert schema.hidden == ("public.orders", "public.totals")
    assert schema.is_hidden("", "orders") and not schema.is_hidden("", "customers")


def test_columns_are_left_out_and_keys_with_them() -> None:
    schema = Policy(columns={"customers": ("city",)}, hidden=("targets",)).apply(SCHEMA)
    customers, orders = schema.tables

    assert [column.name for column in customers.columns] == ["city"]
    assert customers.hidden_columns == ("id", "email")
    assert customers.primary_key == () and orders.foreign_keys == ()


def test_a_table_without_a_column_that_may_be_read_is_hidden() -> None:
    schema = Policy(columns={"customers": ()}).apply(SCHEMA)

    assert "public.customers" not in names(schema) and "public.customers" in schema.hidden


def test_a_view_must_be_listed_if_anything_is_hidden() -> None:
    assert "public.totals" not in names(Policy(hidden=("customers.email",)).apply(SCHEMA))
    assert "public.totals" in names(Policy(tables=("totals",), hidden=("customers.email",)).apply(SCHEMA))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(tables=("custmers",)), "the policy names the table 'custmers', which the database does not have"),
        (Policy(hidden=("customers.mail",)), "the column 'customers.mail', which the database does not have; did you"),
        (Policy(hidden=("nothing",)), "the table 'nothing'"),
        (Policy(columns={"orders": ("amount",)}), "the column 'orders.amount'"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error(policy: Policy, message: str) -> None:
    """A mistyped name in `hidden` would hide nothing."""
    with pytest.raises(QueryFailed) as caught:
        policy.apply(SCHEMA)

    assert caught.value.code == Code.POLICY_INVALID
    assert message in caught.value.message


def test_a_file_has_a_section_for_each_database(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[databases.shop]\nhidden = ["customers.email"]\n[databases.shop.limits]\nseconds = 2.5\n')

    policies = read_policies(file)

    assert policies.for_database("shop").hidden == ("customers.email",)
    assert policies.for_database("shop").limits.seconds == 2.5
    with pytest.raises(QueryFailed, match="no section for the database 'other'"):
        policies.for_database("other")
    file.write_text('[databases."*"]\nrows = 1\n')
    with pytest.raises(QueryFailed, match=r"unknown key 'rows' in databases"):
        read_policies(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[databases", "is not TOML"),
        (b"a = " + b"[" * 3000, "nested too deeply"),
        (b"\xff", "is not UTF-8"),
        (b"[database.shop]", "unknown key 'database'; did you mean 'databases'?"),
        (b"[databases.shop]\ntabels = []", "unknown key 'tabels' in databases.*; did you mean 'tables'?"),
        (b"[databases.shop.limits]\nsecond = 1", "did you mean 'seconds'?"),
        (b'[databases.shop]\ntables = "orders"', "expected 'array', got 'str'"),
        (b"[databases.shop.limits]\nrows = 0", "limit 'rows' must be more than 0"),
        (b"[databases.shop.limits]\ncost = inf", "limit 'cost' must be a number"),
    ],
)
def test_a_wrong_file_is_refused_in_words(text: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(text)

    with pytest.raises(QueryFailed) as caught:
        read_policies(file)

    assert caught.value.code == Code.POLICY_INVALID
    assert str(file) in caught.value.message and message in caught.value.message


def test_a_missing_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(QueryFailed, match="cannot be read: no such file"):
        read_policies(tmp_path / "policy.toml")
