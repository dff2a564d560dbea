"""References to artifacts in words."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.artifacts import Artifact, make_reference, parse_reference
from mulligan.core.model.text.artifact_words import describe_file, with_files_described

TABLE = Artifact("1/a/1/1/t.parquet", 12_345, "00", "parquet", type="pandas.DataFrame", rows=1000, columns=5)


@pytest.mark.parametrize(
    ("artifact", "words"),
    [
        (TABLE, "table 1,000 × 5 (parquet, 12KiB)"),
        (Artifact("1/a", 100, "00", "arrow", type="polars.Series", rows=7), "column 7 (arrow, 100B)"),
        (Artifact("1/a", 100, "00", "npy", type="numpy.ndarray", shape=(2, 3, 4)), "array 2 × 3 × 4 (npy, 100B)"),
        (Artifact("1/a", 100, "00", "npy", type="numpy.ndarray", shape=()), "array (npy, 100B)"),
        (Artifact("1/a", 100, "00", "file"), "file (100B)"),
        (Artifact("1/a", 100, "00", "json"), ""),
    ],
)
def test_a_file_is_described_in_words_and_a_value_is_not(artifact: Artifact, words: str) -> None:
    assert describe_file(make_reference(artifact)) == words
    assert parse_reference(make_reference(artifact)) == artifact


def test_a_reference_has_no_fields_that_say_nothing() -> None:
    assert make_reference(Artifact("1/a", 1, "00")) == {
        "$artifact": {"name": "1/a", "size": 1, "sha256": "00", "format": "json"}
    }


def test_files_anywhere_in_a_value_are_described_and_large_values_stay_references() -> None:
    large = make_reference(Artifact("1/a", 1, "00"))
    value: dict[str, Any] = {"a": [make_reference(TABLE), 1], "b": large, "c": {"$artifact": 3}}

    assert with_files_described(value) == {
        "a": ["table 1,000 × 5 (parquet, 12KiB)", 1],
        "b": large,
        "c": {"$artifact": 3},
    }
