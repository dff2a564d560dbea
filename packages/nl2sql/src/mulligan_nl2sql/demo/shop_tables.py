"""The tables of the shop."""

from __future__ import annotations

from mulligan_nl2sql.schema import Column, ForeignKey, Table

MAIN = "main"


def _column(name: str, kind: str, comment: str = "", *, is_nullable: bool = False) -> Column:
    return Column(name, kind, is_nullable, comment)


def _refers(column: str, table: str) -> ForeignKey:
    return ForeignKey((column,), MAIN, table, ("id",))


TABLES = (
    Table(
        MAIN,
        "categories",
        (_column("id", "INTEGER"), _column("name", "TEXT")),
        ("id",),
        comment="kinds of products",
    ),
    Table(
        MAIN,
        "suppliers",
        (_column("id", "INTEGER"), _column("name", "TEXT"), _column("country", "TEXT")),
        ("id",),
        comment="vendors",
    ),
    Table(
        MAIN,
        "products",
        (
            _column("id", "INTEGER"),
            _column("name", "TEXT"),
            _column("category_id", "INTEGER"),
            _column("supplier_id", "INTEGER", is_nullable=True),
            _column("price", "REAL", "list price, in euros"),
            _column("stock", "INTEGER", "units in stock"),
            _column("weight", "REAL", "weight in kilograms", is_nullable=True),
            _column("is_discontinued", "BOOLEAN"),
        ),
        ("id",),
        (_refers("category_id", "categories"), _refers("supplier_id", "suppliers")),
        comment="articles",
    ),
    Table(
        MAIN,
        "customers",
        (
            _column("id", "INTEGER"),
            _column("name", "TEXT"),
            _column("email", "TEXT", is_nullable=True),
            _column("city", "TEXT", "town of residence"),
            _column("country", "TEXT"),
            _column("signed_up_on", "DATE", "the day of the registration"),
            _column("is_business", "BOOLEAN"),
        ),
        ("id",),
        comment="clients",
    ),
    Table(
        MAIN,
        "orders",
        (
            _column("id", "INTEGER"),
            _column("customer_id", "INTEGER"),
            _column("status", "TEXT"),
            _column("ordered_on", "DATE"),
            _column("total", "REAL", "order value, in euros"),
        ),
        ("id",),
        (_refers("customer_id", "customers"),),
    ),
    Table(
        MAIN,
        "order_items",
        (
            _column("order_id", "INTEGER"),
            _column("product_id", "INTEGER"),
            _column("quantity", "INTEGER"),
            _column("unit_price", "REAL", "in euros"),
        ),
        ("order_id", "product_id"),
        (_refers("order_id", "orders"), _refers("product_id", "products")),
        comment="order lines",
    ),
    Table(
        MAIN,
        "shipments",
        (
            _column("id", "INTEGER"),
            _column("order_id", "INTEGER"),
            _column("carrier", "TEXT"),
            _column("shipped_on", "DATE"),
            _column("delivered_on", "DATE", is_nullable=True),
        ),
        ("id",),
        (_refers("order_id", "orders"),),
    ),
    Table(
        MAIN,
        "payments",
        (
            _column("id", "INTEGER"),
            _column("order_id", "INTEGER"),
            _column("method", "TEXT"),
            _column("amount", "REAL", "in euros"),
            _column("paid_at", "DATETIME"),
        ),
        ("id",),
        (_refers("order_id", "orders"),),
    ),
    Table(
        MAIN,
        "reviews",
        (
            _column("id", "INTEGER"),
            _column("product_id", "INTEGER"),
            _column("customer_id", "INTEGER"),
            _column("rating", "INTEGER", "stars"),
            _column("written_on", "DATE"),
        ),
        ("id",),
        (_refers("product_id", "products"), _refers("customer_id", "customers")),
    ),
    Table(
        MAIN,
        "employees",
        (
            _column("id", "INTEGER"),
            _column("name", "TEXT"),
            _column("department", "TEXT"),
            _column("salary", "REAL", "in euros"),
            _column("hired_on", "DATE"),
            _column("manager_id", "INTEGER", is_nullable=True),
        ),
        ("id",),
        (_refers("manager_id", "employees"),),
        comment="staff",
    ),
)
