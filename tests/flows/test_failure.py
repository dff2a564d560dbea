"""`mulligan.Failure` has the fields that expressions have, though a step's interpreter may lack what the core needs."""

from __future__ import annotations

from dataclasses import fields

from mulligan import Failure
from mulligan.language.scope import FAILURE_FIELDS


def test_a_failure_has_the_fields_of_failures_in_expressions() -> None:
    assert sorted(field.name for field in fields(Failure)) == sorted(FAILURE_FIELDS)
