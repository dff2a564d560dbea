"""`${…}`: holes, checks, values. Every refusal by its whole text and its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model.workflow import Expression, Template
from mulligan.errors import ExpressionFailed
from mulligan.language.expressions import (
    Cel,
    ExpressionRefused,
    Placeholder,
    as_text,
    check,
    condition,
    condition_source,
    evaluate,
    find_placeholders,
    paths,
    render,
    template,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("plain $HOME { }", ("plain $HOME { }",)),
        ("${a}", (Placeholder("a", 0, 4),)),
        ("x${a}y${b}", ("x", Placeholder("a", 1, 4), "y", Placeholder("b", 6, 4))),
        # braces in strings and maps do not close the hole
        ('${ {"a": "}"}["a"] }!', (Placeholder(' {"a": "}"}["a"] ', 0, 20), "!")),
        ("${'}' + \"}\"}", (Placeholder("'}' + \"}\"", 0, 12),)),
        ('${"""}"}"""}', (Placeholder('"""}"}"""', 0, 12),)),
        ("${r'\\'}", (Placeholder("r'\\'", 0, 7),)),
        ("${'\\'}'}", (Placeholder("'\\'}'", 0, 8),)),
        # an escaped hole is text, also beside others
        ("$${a}", ("${a}",)),
        ("1$${a}${b}2", ("1${a}", Placeholder("b", 6, 4), "2")),
        ("${'$${'}", (Placeholder("'$${'", 0, 8),)),
        ("${'${'}", (Placeholder("'${'", 0, 7),)),
    ],
)
def test_text_is_split_into_literals_and_holes(text: str, parts: tuple[str | Placeholder, ...]) -> None:
    assert find_placeholders(text) == parts


@pytest.mark.parametrize(
    ("text", "offset"), [("ab ${inputs.x", 3), ("${", 0), ('${"}', 0), ("${{}", 0), ("${a}${b", 4)]
)
def test_a_hole_that_is_not_closed_is_refused_where_it_opens(text: str, offset: int) -> None:
    with pytest.raises(ExpressionRefused) as refused:
        find_placeholders(text)

    assert refused.value.message == "'${' is not closed by '}'"
    assert refused.value.hint == "for the characters '${' write '$${'"
    assert (refused.value.offset, refused.value.length) == (offset, 2)


@given(st.text(alphabet="ab$ {}'\"\\\n"))
def test_no_text_is_lost_between_literals_and_holes(text: str) -> None:
    try:
        parts = find_placeholders(text)
    except ExpressionRefused as refused:
        assert text[refused.offset :].startswith("${")
        return

    written = "".join(part.replace("${", "$${") if isinstance(part, str) else f"${{{part.source}}}" for part in parts)
    assert written == text


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("1 + 2", ()),
        ("inputs.x", ("inputs",)),
        ("inputs.x + inputs.y", ("inputs",)),
        ("steps.build.output.x", ("steps.build",)),
        ('steps["build-image"].output', ("steps.build-image",)),
        ("steps['a'].output + steps.b.output", ("steps.a", "steps.b")),
        # a computed index may be any step
        ("steps[inputs.x].output", ("steps.*", "inputs")),
        ("steps['a' + 'b'].output", ("steps.*",)),
        ("steps", ("steps.*",)),
        ("steps.filter(s, true)", ("steps.*",)),
        ("error.message + failure.context", ("error", "failure")),
        ("output.a && outputs.b && run.c && env.D && files.e", ("output", "outputs", "run", "env", "files")),
        ("secrets.TOKEN", ("secrets.TOKEN",)),
        ("'Bearer ' + secrets.TOKEN", ("secrets.TOKEN",)),
        ("pkg.name + string(index)", ("pkg", "index")),
        # fields, methods, functions, types, keywords and strings are no reads
        ("inputs.steps.error.output", ("inputs",)),
        ("size('inputs.x') == 1 || true", ()),
        ("type(inputs.x) == string", ("inputs",)),
        ("[1].map(v, v * 2)", ()),
        ("inputs.l.filter(i, i.x == index)", ("inputs", "index")),
        # the variable holds only within its macro, and hides the name of the same sound there
        ("v + size([1].map(v, v))", ("v",)),
        ("[1].exists(v, v > 0) && v", ("v",)),
        ("[1].map(inputs, inputs)", ()),
        ("[1].map(a, [2].map(b, a + b + c))", ("c",)),
        ("x.map(x, x)", ("x",)),
        ("{a: 'b', 'c': d}", ("a", "d")),
        ("inputs.x // and steps.y", ("inputs",)),
        ("'''steps.a''' + \"error\" + r'output'", ()),
        ("  inputs . x  ", ("inputs",)),
    ],
)
def test_the_names_that_an_expression_reads_are_known(source: str, reads: tuple[str, ...]) -> None:
    assert check(source) == Expression(source=source.strip(), reads=reads)


NAMES = st.sampled_from(["inputs", "error", "output", "run", "pkg"])
LEAVES = st.one_of(
    NAMES.map(lambda name: (name, {name})),
    NAMES.map(lambda name: (f"{name}.error", {name})),
    NAMES.map(lambda name: (f"'{name}.x'", set[str]())),
    st.sampled_from(["a", "b-c"]).map(lambda step: (f'steps["{step}"].output', {f"steps.{step}"})),
    st.just(("bound", set[str]())),
)


def _joined(children: st.SearchStrategy[tuple[str, set[str]]]) -> st.SearchStrategy[tuple[str, set[str]]]:
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda pair: (f"({pair[0][0]} == {pair[1][0]})", pair[0][1] | pair[1][1])),
        pairs.map(lambda pair: (f"[{pair[0][0]}].exists(bound, {pair[1][0]})", pair[0][1] | pair[1][1])),
        pairs.map(lambda pair: (f'{{"inputs": {pair[0][0]}, "}}": {pair[1][0]}}}', pair[0][1] | pair[1][1])),
        children.map(lambda child: (f"size({child[0]})", child[1])),
    )


@settings(max_examples=examples(40, 100))
@given(st.recursive(LEAVES, _joined, max_leaves=6))
def test_the_reads_of_any_expression_are_its_free_names(built: tuple[str, set[str]]) -> None:
    source, free = built

    reads = check(f"[1].all(bound, {source})").reads

    assert set(reads) == free


REFUSALS = [
    ("1 +", "'1 +' is not an expression: it ends too early", 3, 1, ""),
    ("", "'' is not an expression: it is empty", 0, 1, ""),
    ("  ", "'' is not an expression: it is empty", 2, 1, ""),
    (
        "inputs.a and inputs.b",
        "'inputs.a and inputs.b' is not an expression: 'and' is not expected here",
        9,
        3,
        "did you mean '&&'?",
    ),
    ("  a b", "'a b' is not an expression: 'b' is not expected here", 4, 1, ""),
    ("inputs.a = 1", "'inputs.a = 1' is not an expression: '=' is not expected here", 9, 1, "did you mean '=='?"),
    ("1 +* 2", "'1 +* 2' is not an expression: '*' is not expected here", 3, 1, ""),
    ("1 +\n* 2", "'1 +\n* 2' is not an expression: '*' is not expected here", 4, 1, ""),
    ("inputs.`a`", "'inputs.`a`' is not an expression: '`' is not expected here", 7, 1, ""),
    ("Foo{a: 1}", "'Foo{a: 1}' is not an expression: 'Foo' is not expected here", 0, 3, ""),
    (".inputs.a", "'.inputs.a' is not an expression: 'inputs' is not expected here", 1, 6, ""),
    ("inputs.ä", "'inputs.ä' is not an expression: 'ä' is not expected here", 7, 1, ""),
    ("$HOME", "'$HOME' is not an expression: '$' is not expected here", 0, 1, ""),
    ("'abc", "''abc' is not an expression: the string is not closed", 0, 4, ""),
    ("'\\ud800'", "''\\ud800'' is not an expression: the string has an invalid escape", 0, 8, ""),
    ("(1", "'(1' is not an expression: '(' is not closed", 0, 1, ""),
    ("[1)", "'[1)' is not an expression: ')' closes nothing", 2, 1, ""),
    ("if", "'if' is not an expression: 'if' is a reserved word", 0, 2, ""),
    (
        "has(inputs)",
        "'has(inputs)' is not an expression: has() takes a field, such as has(inputs.x)",
        4,
        6,
        "",
    ),
    (
        "[1].map(1, 2)",
        "'[1].map(1, 2)' is not an expression: the first argument here must be the name of a variable",
        8,
        1,
        "",
    ),
    (
        "'a'.startswith('b')",
        "''a'.startswith('b')' is not an expression: there is no function 'startswith'",
        4,
        10,
        "did you mean 'startsWith'?",
    ),
    (
        "zzzz(1)",
        "'zzzz(1)' is not an expression: there is no function 'zzzz'",
        0,
        4,
        "the functions here are bool, bytes, double, duration, dyn, has, int, size, string, timestamp, type, uint",
    ),
    ("(" * 25 + "1" + ")" * 25, f"'{'(' * 25}1{')' * 25}' is not an expression: it is nested too deeply", 24, 1, ""),
    ("1" * 9000, f"'{'1' * 57}…' is not an expression: it is longer than 8192 characters", 0, 1, ""),
    (
        "secrets.A + inputs.b",
        "'secrets.A + inputs.b' reads 'secrets.A' and 'inputs': a secret must be read on its own",
        0,
        20,
        "only workers know secrets: use two '${…}', one for each",
    ),
    ("secrets[inputs.a]", "'secrets[inputs.a]' must name the secret it reads", 0, 17, "write secrets.NAME"),
    ("secrets", "'secrets' must name the secret it reads", 0, 7, "write secrets.NAME"),
]


@pytest.mark.parametrize(("source", "message", "offset", "length", "hint"), REFUSALS)
def test_what_is_no_expression_is_refused_at_its_place(
    source: str, message: str, offset: int, length: int, hint: str
) -> None:
    with pytest.raises(ExpressionRefused) as refused:
        check(source, offset=100)

    error = refused.value
    assert (error.message, error.offset, error.length, error.hint) == (message, 100 + offset, length, hint)


@pytest.mark.parametrize(
    "source",
    [
        # Each is nothing but paths, literals and operators.
        "1 == a" + ".b" * 40,
        "a" + ".b" * 25 + " + a" * 15,
        "a" + "[0]" * 40 + " == 1",
        "a" + " + a" * 40,
    ],
)
def test_what_the_engine_cannot_take_for_its_depth_is_refused_before_anything_runs(source: str) -> None:
    with pytest.raises(ExpressionRefused) as refused:
        check(source)

    assert refused.value.message == f"'{source[:57]}…' is not an expression: it is nested too deeply"


def test_a_refusal_within_a_template_points_into_the_whole_text() -> None:
    with pytest.raises(ExpressionRefused) as refused:
        template("target ${inputs.x} and ${ inputs.y + }")

    assert refused.value.message == "'inputs.y +' is not an expression: it ends too early"
    assert refused.value.offset == len("target ${inputs.x} and ${ inputs.y +")


@settings(max_examples=examples(40, 100))
@given(st.text(max_size=30))
def test_any_text_is_checked_or_refused_within_its_bounds(text: str) -> None:
    try:
        check(text)
    except ExpressionRefused as refused:
        assert 0 <= refused.offset <= len(text)


def at(source: str, **names: Any) -> Any:
    return evaluate(check(source), names)


def test_a_plain_path_gives_the_value_itself_with_its_keys_in_their_order() -> None:
    config = {"z": 2**70, "a": "\0", "m": [1]}

    assert at("inputs.config", inputs={"config": config}) is config
    assert at("inputs['config'].m[0]", inputs={"config": config}) == 1


def test_an_expression_is_handed_only_the_paths_it_reads() -> None:
    steps = {"a": {"output": {"n": 1, "never": object()}, "status": "completed"}, "b": object()}

    assert at("steps.a.output.n + 1", steps=steps) == 2
    assert at("steps.a.status == 'completed' && has(steps.a.output.n)", steps=steps) is True
    assert at("has(steps.a.output.nope)", steps=steps) is False


def test_a_path_that_lies_within_another_is_read_with_it() -> None:
    inputs = {"x": {"y": 1}, "z": 2}

    assert at("size(inputs) + inputs.x.y", inputs=inputs) == 3
    assert at("inputs.x.y + size(inputs.x) + inputs.z", inputs=inputs) == 4
    assert inputs == {"x": {"y": 1}, "z": 2}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("inputs.nope", "no such key 'nope'"),
        ("inputs.nope + 1", "no such key 'nope'"),
        ("nope", "'nope' is not known here"),
        ("nope.x == 1", "'nope' is not known here"),
        ("inputs.x.y", "the field 'y' is read from a number"),
        ("inputs.s.y", "the field 'y' is read from a string"),
        ("inputs.n.y", "the field 'y' is read from null"),
        ("inputs.l.y", "the field 'y' is read from a list"),
        ("inputs.l[2]", "index 2 is out of range"),
        ("inputs.s[0]", "index 0 is read from a string"),
        ("inputs.x / 0", "division by zero"),
        ("inputs.s + inputs.x", "'+' does not work on string and int"),
        ("inputs.big + 1", "a number it reads does not fit in 64 bits"),
    ],
)
def test_an_expression_that_has_no_value_says_which_and_why(source: str, reason: str) -> None:
    inputs = {"x": 1, "s": "text", "n": None, "l": [1, 2], "big": 2**80}

    with pytest.raises(ExpressionFailed) as failed:
        at(source, inputs=inputs)

    assert failed.value.message == f"'{source}': {reason}"
    assert failed.value.data == {"expression": source, "reason": reason}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # one expression alone keeps its type
        ("${inputs.n}", 3),
        ("${inputs.m}", {"b": [1.5, None], "a": "é"}),
        ("${inputs.nothing}", None),
        ("${inputs.n == 3}", True),
        # in text: strings as they are, null as nothing, the rest as compact JSON
        ("n=${inputs.n}", "n=3"),
        ("<${inputs.s}>", "<two words>"),
        ("<${inputs.nothing}>", "<>"),
        ("${inputs.yes}${inputs.f}", "true2.5"),
        (" ${inputs.m}", ' {"b":[1.5,null],"a":"é"}'),
        ("$${inputs.n} is ${inputs.n}", "${inputs.n} is 3"),
        ("no holes", "no holes"),
        ("", ""),
    ],
)
def test_a_template_becomes_a_value_or_text(text: str, value: Any) -> None:
    names = {
        "inputs": {"n": 3, "s": "two words", "nothing": None, "yes": True, "f": 2.5, "m": {"b": [1.5, None], "a": "é"}}
    }

    result = render(template(text), names)

    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("inputs.s", "the result is a string, not true or false"),
        ("inputs.n", "the result is a number, not true or false"),
        ("inputs.nothing", "the result is null, not true or false"),
        ("[inputs.n]", "the result is a list, not true or false"),
        ("{'a': 1}", "the result is a map, not true or false"),
        ("inputs.s + '!'", "the result is a string, not true or false"),
    ],
)
def test_a_condition_is_never_judged_by_its_truthiness(source: str, reason: str) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        condition(check(source), {"inputs": {"s": "true", "n": 1, "nothing": None}})

    assert failed.value.message == f"'{source}': {reason}"


@pytest.mark.parametrize(
    ("text", "source", "offset"),
    [
        ("inputs.x > 1", "inputs.x > 1", 0),
        ("${inputs.x > 1}", "inputs.x > 1", 2),
        (" ${ inputs.x } ", " inputs.x ", 3),
        # two holes are not one around the whole
        ("${inputs.x} == ${inputs.y}", "${inputs.x} == ${inputs.y}", 0),
        ("${'}'} == '}'", "${'}'} == '}'", 0),
    ],
)
def test_a_condition_may_stand_in_a_hole(text: str, source: str, offset: int) -> None:
    assert condition_source(text) == (source, offset)


def test_the_evaluator_of_the_core_evaluates_renders_and_judges() -> None:
    cel, names = Cel(), {"output": {"ok": True}}

    assert cel.evaluate(check("output.ok"), names) is True
    assert cel.render(Template(parts=("ok: ", check("output.ok"))), names) == "ok: true"
    assert cel.condition(check("output.ok && true"), names) is True


def test_the_evaluator_knows_the_environment_it_was_given_and_no_other() -> None:
    cel = Cel(env={"REGION": "north"})

    assert cel.evaluate(check("env.REGION"), {}) == "north"
    assert cel.evaluate(check("env['REGION'] + '!'"), {}) == "north!"
    assert cel.render(Template(parts=("to ", check("env.REGION"))), {}) == "to north"
    assert cel.condition(check("env.REGION == inputs.x"), {"inputs": {"x": "north"}}) is True
    assert cel.condition(check("has(env.HOME)"), {}) is False
    assert cel.evaluate(check("has(env.HOME) ? env.HOME : 'nowhere'"), {}) == "nowhere"


@pytest.mark.parametrize("source", ["env.HOME", "env['HOME']", "env.HOME + '!'", "size(env.HOME)", "env.HOME == 'x'"])
def test_an_environment_variable_that_is_not_set_is_named(source: str) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        Cel(env={"REGION": "north"}).evaluate(check(source), {})

    assert failed.value.message == f"'{source}': environment variable 'HOME' is not set"


def test_without_an_environment_no_variable_is_set() -> None:
    with pytest.raises(ExpressionFailed) as failed:
        Cel().evaluate(check("env.HOME"), {})

    assert failed.value.data["reason"] == "environment variable 'HOME' is not set"


def test_a_failure_that_has_other_reasons_is_not_put_down_to_the_environment() -> None:
    with pytest.raises(ExpressionFailed) as failed:
        Cel(env={"REGION": "north"}).evaluate(check("env.REGION + inputs.n"), {"inputs": {"n": 1}})

    assert failed.value.data["reason"] == "'+' does not work on string and int"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(40, 100))
@given(JSON)
def test_any_json_goes_through_the_engine_unchanged(value: Any) -> None:
    assert at("[inputs.x][0]", inputs={"x": value}) == value


def test_text_of_floats_and_maps_is_json() -> None:
    assert [as_text(value) for value in (1.0, 1e21, {"a": [None]}, False)] == ["1.0", "1e21", '{"a":[null]}', "false"]


@settings(max_examples=examples(40, 100))
@given(
    st.lists(st.sampled_from(["steps", "a", "output", "map", "size", "int", "in", "true", "as", "b1", "_"]), min_size=1)
)
def test_a_plain_path_is_read_as_its_tokens_are(names: list[str]) -> None:
    """A path is recognised without looking at tokens, and with blanks around its dots it is not."""
    found = []
    for source in (".".join(names), " . ".join(names)):
        try:
            expression = check(source)
            found.append((expression.reads, paths(expression)))
        except ExpressionRefused:
            found.append((("refused",), ()))

    assert found[0] == found[1]
