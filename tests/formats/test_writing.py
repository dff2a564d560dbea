"""The text that `convert` writes: the same value for every reader of YAML, and as a person would have written it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.formats.translation import made
from mulligan.formats.writing import write_yaml
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, plain

AT = Scalar("", "", "", 0, 0, 0)

# Texts that some reader of YAML takes for something else, or for the start of something.
TRAPS = [
    *(
        "on",
        "no",
        "y",
        "N",
        "Yes",
        "OFF",
        "~",
        "null",
        "Null",
        "true",
        "False",
        "",
        " ",
        "\t",
        "\n",
        "\n\n",
        " a",
        "a ",
    ),
    *(
        "1:10",
        "0o7",
        "0x1F",
        "0b1",
        "010",
        "1e3",
        "1_000",
        "-1",
        "+1",
        ".5",
        ".inf",
        "-.INF",
        ".nan",
        "1.",
        "12345678901",
    ),
    *(
        "2001-12-14",
        "2001-12-14t21:59:43.10-05:00",
        "=",
        "<<",
        "---",
        "...",
        "-",
        "- a",
        "? a",
        ": a",
        "a: b",
        "a:",
        "a #b",
    ),
    *("#a", "&a", "*a", "!a", "!!str a", "|", ">", "%a", "@a", "`a", "[a", "{a}", "a, b", "${a}", "'a'", '"a"', "a\\b"),
    *(
        "a\nb",
        "a\nb\n",
        "a\nb\n\n",
        "\na\n",
        "  a\nb",
        "a\n  b",
        "\ta\nb",
        "a \nb",
        "a\n \nb",
        "\n  a\n b",
        "a\r\nb",
        "a\rb",
    ),
    *(
        "a\x85b\nc",
        "a\u2028b",
        "\ufeffa",
        "\x1b[1m",
        "\x7f",
        "caf\xe9",
        "\U0001f600",
        "a\tb",
        "a\n\tb",
        "x" * 200,
        "\xa0",
    ),
    *("word " * 40 + "end", "word  word " * 40 + "end", "word\tword " * 40 + "end", "# word " * 40 + "end"),
]

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
signs = st.sampled_from("\n \t'\":#-[]{}$,?a|>!&*%@`~=0.1e\\xyz")
texts = st.one_of(st.text(letters), st.text(signs), st.sampled_from(TRAPS))
whole_numbers = st.integers(-(2**63), 2**63 - 1)
single = st.one_of(st.none(), st.booleans(), whole_numbers, st.floats(allow_nan=False, allow_infinity=False), texts)
values = st.recursive(single, lambda one: st.one_of(st.lists(one), st.dictionaries(texts, one)), max_leaves=20)


def node(value: Any) -> Node:
    """A tree as a reader makes it. What is None stays in it."""
    if isinstance(value, dict):
        found = Mapping(0, 0)
        found.entries = {key: (_scalar(key), node(one)) for key, one in value.items()}
        return found
    if isinstance(value, list):
        listed = Sequence(0, 0)
        listed.items = [node(one) for one in value]
        return listed
    return made(value, AT)


def _scalar(text: str) -> Scalar:
    found = made(text, AT)
    assert isinstance(found, Scalar)
    return found


def read(text: str) -> Any:
    return plain(parse(Source(text, "written.yaml")))


# Any tree


trees = st.one_of(st.dictionaries(texts, values, min_size=1), st.lists(values, min_size=1))


@settings(max_examples=60)
@given(trees, st.text(letters), st.integers(1, 3))
def test_what_is_written_is_read_as_the_same_by_us_and_remarks_change_nothing(
    value: dict[str, Any] | list[Any], remark: str, every: int
) -> None:
    root = node(value)
    remarks = {id(one): [remark] for one in _all(root)[::every]}

    assert repr(read(write_yaml(root, {}))) == repr(value)
    assert repr(read(write_yaml(root, remarks))) == repr(value)


# A key `on` stands as it is, since that is how our files have it.
@pytest.mark.nightly
@given(st.dictionaries(texts.filter(lambda key: key != "on"), st.one_of(single, st.lists(single)), min_size=1))
def test_readers_of_yaml_1_1_find_the_same(value: dict[str, Any]) -> None:
    assert yaml.safe_load(write_yaml(node(value), {})) == value


@pytest.mark.parametrize("text", TRAPS)
def test_a_text_stays_that_text_wherever_it_stands(text: str) -> None:
    value = {"a": text, "b": {"c": [text, 1], text: {"d": [{"e": text, "f": {"g": 1}}]}}, "h": [[text]]}

    said = write_yaml(node(value), {})

    assert read(said) == value
    assert yaml.safe_load(said) == value or text == "on"


def test_a_key_that_is_too_long_for_a_line_says_that_it_is_one() -> None:
    value = {"k" * 2000: {"a": "b\nc\n"}, "l" * 2000: ["x", {"y": {"z": 1}}]}

    assert read(write_yaml(node(value), {})) == value


def _all(root: Node) -> list[Node]:
    found: list[Node] = [root]
    if isinstance(root, Mapping):
        found += [one for entry in root.items() for child in entry for one in _all(child)]
    if isinstance(root, Sequence):
        found += [one for child in root.items for one in _all(child)]
    return found


# As a person writes


WORKFLOW = {
    "name": "release",
    "description": "Builds: and checks",
    "inputs": {"target": {"type": "string", "default": "staging"}, "hook": {"type": "string", "default": ""}},
    "files": {"mesh": "out/mesh.vtk"},
    "steps": [
        {
            "step": "build",
            "shell": "make TARGET=${inputs.target}",
            "env": {"LEVEL": "3", "NAME": "${inputs.target}", "QUIET": "no"},
            "retry": {"max_retries": 2, "delay": "1s"},
        },
        {"step": "check", "needs": ["build"], "shell": "set -e\n./check.sh\n\n./report.sh\n"},
        {
            "step": "deploy",
            "needs": [{"step": "check", "on": "always"}, "build"],
            "next": [{"to": "announce"}, {"to": "repair", "on": "failure", "codes": ["TIMEOUT"], "then": "rerun"}],
            "http": {"url": "https://chat.example/hook", "json": {"text": "deployed"}},
            "on_failure": {"shell": 'echo "it\'s over"'},
        },
    ],
    "outputs": {},
}
TEXT = """\
# Converted from release.kdl (Torc) by `mulligan convert`.

name: release
description: "Builds: and checks"

inputs:
  target: {type: string, default: staging}
  hook: {type: string, default: ""}

files: {mesh: out/mesh.vtk}

steps:
  - step: build
    shell: make TARGET=${inputs.target}
    env: {LEVEL: "3", NAME: "${inputs.target}", QUIET: "no"}
    retry: {max_retries: 2, delay: 1s}

  - step: check
    needs: [build]
    shell: |
      set -e
      ./check.sh

      ./report.sh

  - step: deploy
    needs:
      - {step: check, on: always}
      - build
    next:
      - to: announce
      - {to: repair, on: failure, codes: [TIMEOUT], then: rerun}
    http:
      url: https://chat.example/hook
      json: {text: deployed}
    on_failure: {shell: echo "it's over"}

outputs: {}
"""


def test_a_workflow_looks_as_if_a_person_had_written_it() -> None:
    said = write_yaml(node(WORKFLOW), {}, "Converted from release.kdl (Torc) by `mulligan convert`.")

    assert said == TEXT


def test_a_collection_that_does_not_fit_a_line_has_a_line_for_each_entry() -> None:
    names = [f"step_with_a_long_name_{number}" for number in range(6)]

    said = write_yaml(node({"a": {"needs": names}, "b": {"short": names[:2]}}), {})

    assert said == (
        "a:\n  needs:\n" + "".join(f"    - {name}\n" for name in names) + "\n"
        "b: {short: [step_with_a_long_name_0, step_with_a_long_name_1]}\n"
    )
    assert max(map(len, said.splitlines())) <= 120


def test_a_long_text_goes_on_in_the_next_line() -> None:
    text = "one two three four five six seven eight nine ten " * 4

    said = write_yaml(node({"a": {"b": text.strip()}, "c": text, "d": "x" * 130}), {})

    assert said == f'a:\n  b: >-\n    {text[:116]}\n    {text[117:].strip()}\n\nc: "{text}"\nd: {"x" * 130}\n'


def test_numbers_stay_as_they_were_written_where_all_read_the_same_in_them() -> None:
    root = parse(Source("{a: 1.50, b: 0x10, c: 1e3, d: 010, e: 3, f: 1e400, g: True, h: ~}", "x.yaml"))

    said = write_yaml(root, {})

    assert said == "a: 1.50\nb: 16\nc: 1000.0\nd: 10\ne: 3\nf: .inf\ng: true\nh: null\n"


# Remarks


def test_remarks_stand_above_what_they_are_about() -> None:
    root = node({"name": "x", "steps": [{"step": "a", "env": {"B": "c"}, "needs": ["d"]}, {"step": "e"}]})
    assert isinstance(root, Mapping)
    steps = root.get("steps")
    assert isinstance(steps, Sequence)
    first, last = steps.items
    assert isinstance(first, Mapping) and isinstance(last, Mapping)
    env, name = first.get("env"), first.get("step")
    assert isinstance(env, Mapping) and name is not None
    said = {
        root: "of the file",
        steps: "of the steps",
        first: "of the first",
        name: "of its name",
        env: "of its env",
        env.key("B"): "of B",
        last: "of the last\nin two lines",
    }

    text = write_yaml(root, {id(one): [remark] for one, remark in said.items()}, "the header")

    assert (
        text
        == """\
# the header

# of the file
name: x

# of the steps
steps:
  # of the first
  # of its name
  - step: a
    # of its env
    env:
      # of B
      B: c
    needs: [d]

  # of the last
  # in two lines
  - step: e
"""
    )


def test_a_long_remark_goes_on_in_the_next_line() -> None:
    root = node({"steps": [{"step": "a"}]})
    assert isinstance(root, Mapping)

    said = write_yaml(root, {id(root): ["word " * 30]})

    assert [len(line) for line in said.splitlines()[:2]] == [116, 36]
    assert said.splitlines()[1] == "#" + " word" * 7


def test_a_remark_about_what_is_not_in_the_tree_is_said_at_the_head() -> None:
    lost = made("gone", AT)

    said = write_yaml(node({"name": "x"}), {id(lost): ["'scheduler' is kept for a cluster"]}, "the header")

    assert said == "# the header\n# 'scheduler' is kept for a cluster\n\nname: x\n"
