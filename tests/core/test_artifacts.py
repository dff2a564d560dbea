"""References to artifacts: what is one, what is in a value, and what its bytes must be."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from mulligan.core.model.artifacts import (
    ENDINGS,
    INLINE_BYTES_MAX,
    Artifact,
    decode_content,
    describe_artifact,
    fetch_references,
    holds_reference,
    is_artifact,
    is_artifact_name,
    make_reference,
    parse_reference,
    references,
    replace_references,
    run_id_of,
    verify_content,
)
from mulligan.errors import ArtifactDamaged

ONE = describe_artifact("17/build/1/2/output.json", b"[1]", "json")
TWO = describe_artifact("17/check[3].0/1/1/output.txt", b"text", "text")


def test_a_reference_is_a_mapping_with_one_key_that_says_it() -> None:
    assert make_reference(ONE) == {
        "$artifact": {
            "name": "17/build/1/2/output.json",
            "size": 3,
            "sha256": ONE.sha256,
            "format": "json",
        }
    }
    assert parse_reference(make_reference(ONE)) == ONE


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (make_reference(ONE), True),
        ({"$artifact": 5}, True),
        ({"$artifact": {}, "more": 1}, False),
        ({}, False),
        ("$artifact", False),
        (["$artifact"], False),
        (None, False),
    ],
)
def test_only_a_mapping_with_that_one_key_is_a_reference(value: Any, is_one: bool) -> None:
    assert is_artifact(value) is is_one
    assert holds_reference(value) is is_one
    assert holds_reference([{"deep": value}]) is is_one


def test_a_text_that_speaks_of_references_holds_none() -> None:
    assert not holds_reference(['"$artifact"', {"a": '{"$artifact":1}', "$artifact": 1, "b": 2}])


def test_every_reference_in_a_value_is_found_and_replaced() -> None:
    value = {"a": [make_reference(ONE), 1], "b": {"c": make_reference(TWO)}}

    assert [parse_reference(one).name for one in references(value)] == [ONE.name, TWO.name]
    assert replace_references(value, lambda one: parse_reference(one).size) == {"a": [3, 1], "b": {"c": 4}}


def test_what_replaces_a_reference_is_not_looked_into() -> None:
    assert replace_references(make_reference(ONE), lambda _: make_reference(TWO)) == make_reference(TWO)


def test_what_was_kept_comes_back_as_it_was() -> None:
    assert decode_content(ONE, verify_content(ONE, b"[1]")) == [1]
    assert decode_content(TWO, verify_content(TWO, b"text")) == "text"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[2]", "its hash does not match"),
        (b"[1] ", "it has 4 bytes instead of 3"),
        (b"", "it has 0 bytes instead of 3"),
    ],
)
def test_anything_else_is_damaged(data: bytes, reason: str) -> None:
    with pytest.raises(ArtifactDamaged) as damaged:
        verify_content(ONE, data)

    assert damaged.value.message == f"artifact '{ONE.name}' is damaged: {reason}"
    assert damaged.value.data == {"name": ONE.name}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("17/build/1/2/output.json", True),
        ("17/build.on_failure@2.0/1/1/output-2.txt", True),
        ("17/%2Eodd%20name/1/1/output.json", True),
        ("17/../18/output.json", False),
        ("/17/build/output.json", False),
        ("17//output.json", False),
        ("17/build/.half-12", False),
        ("output.json", False),
        ("17/build/", False),
        ("17/bu ild/output.json", False),
        ("17/b\n/output.json", False),
        ("", False),
    ],
)
def test_a_name_leads_nowhere_but_below(name: str, is_one: bool) -> None:
    assert is_artifact_name(name) is is_one


def test_a_name_says_whose_it_is() -> None:
    assert run_id_of("17/build/1/2/output.json") == 17
    assert (run_id_of("readme"), run_id_of("x/y")) == (0, 0)


@pytest.mark.parametrize(
    ("name", "run_id"),
    [
        ("9" * 19 + "/a", int("9" * 19)),
        # No store has numbered so many: whoever writes such a number means something else.
        ("9" * 20 + "/a", 0),
        ("1", 1),
        ("-1/a", 0),
    ],
)
def test_a_number_that_no_store_has_given_is_no_run(name: str, run_id: int) -> None:
    assert run_id_of(name) == run_id


def test_what_is_larger_than_64_kib_is_kept_beside_the_log_and_a_file_says_what_is_in_it() -> None:
    assert INLINE_BYTES_MAX == 65_536
    assert ENDINGS == {"json": ".json", "text": ".txt"}


def test_an_artifact_is_described_by_its_size_and_its_hash() -> None:
    digest = hashlib.sha256(b"[1]").hexdigest()

    assert describe_artifact("1/a/output.json", b"[1]", "json") == Artifact("1/a/output.json", 3, digest, "json")
    assert Artifact("1/a/output.json", 3, digest).format == "json"


@pytest.mark.parametrize(
    ("written", "message", "data"),
    [
        ({}, "'$artifact' is not a reference to an artifact: object missing required field `name`", {}),
        (
            {"name": 7, "size": 1, "sha256": ""},
            "'$artifact' is not a reference to an artifact: expected `str`, got `int` - at `$.name`",
            {},
        ),
        (
            {"name": "../etc/passwd", "size": 1, "sha256": ""},
            "'../etc/passwd' is not a name of an artifact",
            {"name": "../etc/passwd"},
        ),
    ],
)
def test_a_reference_that_somebody_wrote_by_hand_refers_to_nothing(
    written: dict[str, Any], message: str, data: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactDamaged) as damaged:
        parse_reference({"$artifact": written})

    assert (damaged.value.message, damaged.value.data) == (message, data)


def test_a_value_is_whole_with_what_is_in_its_artifacts() -> None:
    kept = {ONE.name: b"[1]", TWO.name: b"text"}

    found = fetch_references({"a": make_reference(ONE), "b": [make_reference(TWO), 7]}, lambda one: kept[one.name])

    assert found == {"a": [1], "b": ["text", 7]}
