"""Playbooks are YAML 1.1, as NoETL reads them: the values, and the warnings where YAML 1.2 would differ."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from mulligan.formats.noetl.yaml_1_1 import parse, resolve
from mulligan.language.text.nodes import Refusal, Source, plain

from .playbooks import mulligan, newer, ran, refused, warned, written

PLAIN = (
    *"yes Yes YES no No NO on On ON off Off OFF true True false FALSE y n Y N yES oN tRue".split(),
    *"null Null NULL ~ nULL none None".split(),
    *"0 7 -7 +7 010 -010 08 0o10 0x1F 0X1f -0x1f 0b101 0b2 1_000 1__0 _1 00 0_7".split(),
    *"1:30 1:30:15 -1:30 1:75 0:30 12:3 01:30 1:30.5 190:20:30.15".split(),
    *"1.5 1. .5 -.5 +.5 1e3 1.5e3 1.5e+3 1.5E-3 1_0.5 . -. .inf -.inf +.INF .nan .NaN 1.2.3".split(),
    *"- + -- text 10.0.0.1 v1 1a 0x = <".split(),
)


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_scalar_has_the_value_that_pyyaml_gives_it(text: str):
    expected = yaml.safe_load(f"v: {text}")["v"] if text not in ("-", "=") else text

    found = resolve(text)

    assert (type(found), repr(found)) == (type(expected), repr(expected))


@pytest.mark.parametrize("text", ["2024-01-31", "2024-01-31T10:00:00Z", "2024-01-31 10:00:00"])
def test_a_date_stays_the_text_that_templates_show(text: str):
    assert resolve(text) == text


def tree(text: str) -> tuple[Any, list[str]]:
    source = Source(text, "playbook.yaml")
    found = plain(parse(source))
    return found, [problem.message for problem in source.warnings]


def test_a_value_that_yaml_1_2_reads_differently_is_a_warning_and_others_are_none():
    found, said = tree("a: no\nb: 'no'\nc: 010\nd: 1e3\ne: true\nf: 10\ng: !!str off\nh: !!bool off\non: !!int 010\n")

    assert found == {"a": False, "b": "no", "c": 8, "d": "1e3", "e": True, "f": 10, "g": "off", "h": False, "on": 8}
    assert said == [
        "'no' is false: NoETL reads YAML 1.1",
        "'010' is 8: NoETL reads YAML 1.1",
        "'1e3' is a text: NoETL reads YAML 1.1",
    ]


def test_the_last_of_two_keys_counts_and_a_key_is_a_text():
    found, said = tree("a: 1\nb: 2\na: 3\nyes: 4\n010: 5\n")

    assert found == {"a": 3, "b": 2, "yes": 4, "010": 5}
    assert said == ["'a' appears twice: the last one counts, as in NoETL; the first is in line 1"]


MERGED = """
base: &base {a: 1, b: 2}
more: &more {b: 3, c: 4}
one: {<<: *base, b: 5}
own first: {b: 5, <<: *base}
several: {<<: [*base, *more], d: 6}
twice: {<<: *base, <<: *more}
again: {<<: {<<: *base, b: 7}}
text: {"<<": 1}
"""


def test_merge_keys_are_followed_as_pyyaml_follows_them():
    found, _ = tree(MERGED)

    assert found == yaml.safe_load(MERGED)


@pytest.mark.parametrize("text", ["a: {<<: 1}", "a: {<<: [1]}", "a: 0x1ffffffffffffffff", "a: {[1]: 2}"])
def test_what_cannot_be_read_is_refused(text: str):
    with pytest.raises(Refusal):
        tree(text)


def test_a_run_has_the_values_that_noetl_has_and_so_has_what_it_is_converted_to():
    run = ran(
        newer("""
        workload: {dry_run: no, mode: 0644, at: 1:30, limit: 5}
        workflow:
          - step: show
            tool:
              kind: python
              input: &all {dry: "{{ workload.dry_run }}", mode: "{{ workload.mode }}", fixed: off}
              code: "result = [dry, mode, fixed]"
            next: {arcs: [{step: write, when: "{{ not workload.dry_run }}"}]}
          - step: write
            tool:
              kind: python
              input: {<<: *all, at: "{{ workload.at }}"}
              code: "result = [0]"
              code: "result = [dry, mode, fixed, at]"
        """)
    )

    assert run["outputs"]["result"] == [False, 420, False, 90]


def test_the_warning_says_what_to_write_instead():
    said = warned(newer("workload: {dry_run: no}\nworkflow: [{step: a, tool: {kind: noop}}]"))

    assert "warning[language.yaml_1_1]: playbook.yaml:4:21: 'no' is false: NoETL reads YAML 1.1" in said
    assert "write false; for a text, quote it" in said


def test_other_files_are_yaml_1_2_still_and_a_broken_one_gets_one_error():
    said = mulligan("validate", written("steps: [{step: a, shell: x, shell: y}]", "ours.yaml"))
    assert "error[language.duplicate_key]" in said.err

    assert "error[language.yaml]" in refused(newer("workflow: [{step: a, tool: {kind: noop}}\n"))


def test_a_called_playbook_may_have_what_yaml_1_1_allows():
    written(newer("workflow: [{step: a, tool: {kind: noop}, tool: {kind: noop}}]"), "child.yaml")
    text = newer("workflow: [{step: call, tool: {kind: playbook, path: child, return_step: a}}]")

    assert mulligan("validate", written(text)).code == 0
