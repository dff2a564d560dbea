"""What may be read of a database, and what protects it. No statement is involved, so no parser of SQL is loaded."""

from __future__ import annotations

import msgspec

from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.execution.messages import Finding, make_request
from mulligan_nl2sql.execution.processes import ask
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Schema


def read_schema(database: Database, policy: Policy) -> Schema:
    """Read what the policy allows of the schema."""
    answer = ask(make_request("schema", database, policy))
    assert answer.schema is not None
    return answer.schema


def read_index(database: Database, policy: Policy) -> Schema:
    """Read the whole schema, to be kept: a policy is applied when it is used. What it hides has no values."""
    answer = ask(make_request("index", database, policy))
    assert answer.schema is not None
    return answer.schema


def read_structure(database: Database, policy: Policy) -> Schema:
    """Read the whole schema without any values, which is quick."""
    limits = msgspec.structs.replace(policy.limits, sample_values=0)
    return read_index(database, msgspec.structs.replace(policy, limits=limits))


def inspect(database: Database, policy: Policy) -> tuple[Finding, ...]:
    """Say what protects the data of this database, and what does not."""
    return ask(make_request("doctor", database, policy)).findings or ()
