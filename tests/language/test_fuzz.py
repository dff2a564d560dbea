"""Whatever is in a file, it is read or refused: never anything else."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.errors import ExpressionFailed, LanguageError
from mulligan.language import load_text
from mulligan.language.cel.cel import engine
from mulligan.language.expressions import check, evaluate
from mulligan.language.keys.workflow_keys import WORKFLOW
from mulligan.language.shell.shell import rewrite

from .test_schema import GOOD

WORDS = [
    *"name steps step shell python http agent wait approve map do over as needs next to on when retry rules".split(),
    *"on_failure use handlers commands matrix zip inputs outputs end files reads writes undo triage then rerun".split(),
    *"any a b make true 3 30s ${inputs.x} ${steps.a.output} ${ $${x} 1..3 x{i} failure always null".split(),
    *"~ - [] {} '' \" ' # & * ! | >".split(),
]


def survives(text: str | bytes) -> None:
    try:
        load_text(text, "w.yaml")
    except LanguageError as error:
        assert error.problems
        assert error.render().startswith("error[language.")


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"steps: !!binary aGk=")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    survives(data)


@settings(max_examples=examples(40, 100))
@given(st.text(max_size=200))
@example("\ud800")
@example("steps: [{step: s, shell: make, matrix: {a: {from: 1}}}]")
@example("a: \x85b\u2028 c: d")
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(text)


VALUES = st.recursive(
    st.sampled_from(WORDS) | st.integers() | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


def written(value: object) -> str:
    """A value as a flow of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)}: {written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return '"' + value.replace("\\", "").replace('"', "") + '"' if isinstance(value, str) else str(value).lower()


@given(st.dictionaries(st.sampled_from(sorted(WORKFLOW.keys)), VALUES, max_size=5), VALUES)
@settings(max_examples=examples(40, 150))
def test_any_values_under_any_keys_are_read_or_refused(top: dict[str, object], step: object) -> None:
    keys = {**top, "steps": [{"step": "a", **step} if isinstance(step, dict) else step, {"step": "b", "shell": "make"}]}

    survives("\n".join(f"{key}: {written(value)}" for key, value in keys.items()))


@given(st.sampled_from(GOOD), st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=examples(60, 200))
def test_a_good_file_with_a_few_changes_is_read_or_refused(text: str, chance: random.Random, changes: int) -> None:
    for _ in range(changes):
        text = changed(text, chance)

    survives(text)


def changed(text: str, chance: random.Random) -> str:
    """One change that a tired person might make: a word lost, doubled or replaced, a line moved, a sign typed."""
    start = chance.randrange(len(text) + 1)
    end = min(len(text), start + chance.randrange(1, 12))
    kind = chance.randrange(4)
    if kind == 0:
        return text[:start] + text[end:]
    if kind == 1:
        return text[:start] + text[start:end] * 2 + text[end:]
    if kind == 2:
        return text[:start] + chance.choice(WORDS) + text[end:]
    return text[:start] + chance.choice("\t\n :{}[]'\"#&*!|>%@`,-?") + text[start:]


@pytest.mark.skipif(engine().name != "google", reason="the other engine has no such bound")
def test_an_expression_that_goes_through_lists_in_lists_is_given_up_in_words() -> None:
    numbers = list(range(300))

    with pytest.raises(ExpressionFailed) as failed:
        evaluate(check("inputs.n.map(x, inputs.n.map(y, x + y))"), {"inputs": {"n": numbers}})

    assert failed.value.message == (
        "'inputs.n.map(x, inputs.n.map(y, x + y))': it iterates over more than 10,000 items"
    )


def test_a_script_with_thousands_of_values_that_begin_alike_is_rewritten_in_one_pass() -> None:
    stem = "inputs." + "a" * 60

    found = rewrite("\n".join(f"echo ${{{stem}{number}}}" for number in range(3000)))

    assert len(set(found.bindings)) == 3000


def test_a_size_beyond_all_numbers_is_refused_as_any_other() -> None:
    text = f"steps: [{{step: a, shell: make, resources: {{memory: {'9' * 400}MiB}}}}]"

    with pytest.raises(LanguageError) as refused:
        load_text(text, "w.yaml")

    assert refused.value.problems[0].message == f"'memory' is '{'9' * 39}…', a size such as 512MiB is expected"
