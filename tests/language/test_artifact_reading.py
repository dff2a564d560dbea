"""Expressions over artifacts: fetched where a path leads into one, and only then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.model.artifacts import Artifact, describe_artifact, make_reference
from mulligan.errors import ArtifactGone, ExpressionFailed, StoreUnavailable
from mulligan.language.expressions import Cel, check, template


class Library:
    """Artifacts by name, and which of them were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._kept: dict[str, bytes] = {}

    def keep(self, name: str, value: Any) -> dict[str, Any]:
        """A reference to a value that is kept."""
        is_text = isinstance(value, str)
        self._kept[f"1/{name}"] = value.encode() if is_text else msgspec.json.encode(value)
        return make_reference(describe_artifact(f"1/{name}", self._kept[f"1/{name}"], "text" if is_text else "json"))

    def fetch(self, artifact: Artifact) -> bytes:
        self.asked.append(artifact.name)
        if artifact.name not in self._kept:
            raise ArtifactGone(f"artifact '{artifact.name}' is gone")
        return self._kept[artifact.name]


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def cel(library: Library) -> Cel:
    return Cel({}, library.fetch)


def names(output: Any) -> dict[str, Any]:
    return {"steps": {"big": {"output": output, "status": "completed"}}}


def test_a_plain_path_to_one_is_rendered_as_the_reference(library: Library, cel: Cel) -> None:
    kept = library.keep("rows", [1, 2, 3])

    assert cel.render(template("${steps.big.output}"), names(kept)) == kept
    assert cel.render(template("${steps.big}"), names(kept)) == {"output": kept, "status": "completed"}
    assert library.asked == []


def test_evaluated_it_is_what_is_in_it(library: Library, cel: Cel) -> None:
    assert cel.evaluate(check("steps.big.output"), names(library.keep("rows", [1, 2]))) == [1, 2]
    assert cel.evaluate(check("steps.big.output"), names(library.keep("text", "a\nb"))) == "a\nb"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("steps.big.output.rows[1].n", 2),
        ("steps.big.output.rows.map(row, row.n)", [1, 2]),
        ("size(steps.big.output.rows) + steps.big.output.rows[0].n", 3),
        ('steps.big.output["name"] + "!"', "it!"),
        ("has(steps.big.output.nothing)", False),
        ('steps.big.status + ": " + steps.big.output.name', "completed: it"),
    ],
)
def test_a_path_leads_into_it(library: Library, cel: Cel, source: str, value: Any) -> None:
    kept = library.keep("rows", {"rows": [{"n": 1}, {"n": 2}], "name": "it"})

    assert cel.evaluate(check(source), names(kept)) == value
    assert library.asked == ["1/rows"]


def test_what_is_not_read_is_not_fetched(library: Library, cel: Cel) -> None:
    kept = library.keep("rows", [1])

    assert cel.condition(check('steps.big.status == "completed"'), names(kept))
    assert cel.evaluate(check("steps.big.status"), names(kept)) == "completed"
    assert library.asked == []


def test_it_is_fetched_once_for_several_expressions(library: Library, cel: Cel) -> None:
    kept = library.keep("rows", {"n": 1})

    assert [cel.evaluate(check("steps.big.output.n"), names(kept)) for _ in range(3)] == [1, 1, 1]
    assert library.asked == ["1/rows"]


def test_of_many_large_ones_not_all_are_remembered(library: Library, cel: Cel) -> None:
    kept = [library.keep(f"text{number}", "x" * (6 << 20)) for number in range(4)]

    for one in (*kept, kept[3], kept[0]):
        assert cel.condition(check("size(steps.big.output) > 3"), names(one))

    assert library.asked == ["1/text0", "1/text1", "1/text2", "1/text3", "1/text0"]


def test_references_in_a_list_are_fetched_for_what_looks_at_all_of_it(library: Library, cel: Cel) -> None:
    results = [library.keep("a", "aa"), None, library.keep("b", "bbb")]

    found = cel.evaluate(
        check("steps.big.output.results.filter(r, r != null).map(r, size(r))"), names({"results": results})
    )

    assert found == [2, 3]


def test_a_plain_path_to_a_list_of_references_keeps_them(library: Library, cel: Cel) -> None:
    results = [library.keep("a", "aa"), library.keep("b", "bbb")]

    assert cel.evaluate(check("steps.big.output.results"), names({"results": results})) == results
    assert library.asked == []


def test_in_text_it_is_what_is_in_it(library: Library, cel: Cel) -> None:
    assert cel.render(template("<${steps.big.output}>"), names(library.keep("text", "hello"))) == "<hello>"
    assert cel.render(template("<${steps.big.output}>"), names([library.keep("n", [1]), 2])) == "<[[1],2]>"


def test_a_condition_that_is_one_is_read_whole(library: Library, cel: Cel) -> None:
    assert cel.condition(check("steps.big.output"), names(library.keep("yes", True)))


@pytest.mark.parametrize("form", ["steps.big.output.n", "steps.big.output.n + 1", "steps.big.output"])
def test_one_that_is_gone_is_an_expression_that_failed(library: Library, cel: Cel, form: str) -> None:
    gone = make_reference(Artifact("1/never", 1, "0"))

    with pytest.raises(ExpressionFailed) as failed:
        cel.evaluate(check(form), names(gone))

    assert failed.value.message == f"'{form}': artifact '1/never' is gone"


def test_in_text_one_that_is_gone_is_told_too(cel: Cel) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        cel.render(template("<${steps.big.output}>"), names(make_reference(Artifact("1/never", 1, "0"))))

    assert failed.value.message == "'steps.big.output': artifact '1/never' is gone"


def test_a_store_that_is_away_is_no_fault_of_the_expression() -> None:
    def fetch(artifact: Artifact) -> bytes:
        raise StoreUnavailable("it does not answer")

    with pytest.raises(StoreUnavailable):
        Cel({}, fetch).evaluate(check("steps.big.output.n"), names(make_reference(Artifact("1/rows", 1, "0"))))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (5, "'$artifact' is not a reference to an artifact: expected `object`, got `int`"),
        (
            {"name": "1/rows", "size": "many", "sha256": ""},
            "'$artifact' is not a reference to an artifact: expected `int`, got `str` - at `$.size`",
        ),
        ({"name": "../../etc/passwd", "size": 1, "sha256": ""}, "'../../etc/passwd' is not a name of an artifact"),
        ({"name": "/etc/passwd", "size": 1, "sha256": ""}, "'/etc/passwd' is not a name of an artifact"),
        ({"name": "1/../../x", "size": 1, "sha256": ""}, "'1/../../x' is not a name of an artifact"),
    ],
)
def test_one_that_was_written_by_hand_and_wrongly_refers_to_nothing(cel: Cel, written: Any, reason: str) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        cel.evaluate(check("steps.big.output.n"), names({"$artifact": written}))

    assert failed.value.message == f"'steps.big.output.n': {reason}"


LOOKALIKE = {"$artifact": {"name": "1/secret", "size": 1, "sha256": "0", "format": "json"}}


@pytest.mark.parametrize("source", ["steps.big.output.inner", "steps.big.output", "steps.big.output.list.map(x, x)"])
def test_what_is_in_one_is_never_taken_for_a_reference(library: Library, cel: Cel, source: str) -> None:
    kept = library.keep("rows", {"inner": LOOKALIKE, "list": [LOOKALIKE], "n": 1})

    with pytest.raises(ExpressionFailed) as failed:
        cel.evaluate(check(source), names(kept))

    assert failed.value.message == f"'{source}': it has the key '$artifact' in it, which is reserved for artifacts"
    assert cel.evaluate(check('steps.big.output.inner["$artifact"].name'), names(kept)) == "1/secret"
    assert library.asked == ["1/rows"]


def test_without_anywhere_to_fetch_from_a_reference_is_a_value_as_any_other() -> None:
    assert Cel().evaluate(check("steps.big.output"), names(LOOKALIKE)) == LOOKALIKE
