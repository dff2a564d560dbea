"""Workflows that are made of several files, and what is said where that is not possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.formats import examine, load
from mulligan.formats.prodigy.parameter_rules import find_problem, parse_rules

from .whole import tree


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def composed(text: str) -> dict[str, Any]:
    return tree(text, "flow.yml")


def scripts(text: str) -> list[str]:
    return [step["shell"] for step in composed(text)["steps"] if "shell" in step]


def refused(text: str, folder: Path) -> str:
    with pytest.raises(LanguageError) as caught:
        examine(write(folder, "flow.yml", text), named="prodigy")
    return caught.value.render().replace(f"{folder}/", "").replace(str(folder), "FOLDER")


# -- imports ---------------------------------------------------------------------------------------------------------


def test_the_steps_of_imported_files_come_after_ours_in_the_order_of_the_file(here: Path) -> None:
    write(here, "parts/a.yml", "env: {A: a, B: theirs}\ncommands: [{shell: echo a}]\n")
    write(here, "parts/b.yml", "env: {A: later}\ncommands: [{shell: echo b}]\n")
    text = "imports: [{path: parts/a.yml}, parts/b.yml]\nenv: {B: ours}\ncommands: [{shell: echo c}]\n"

    assert scripts(text) == ["echo c", "echo a", "echo b"]
    assert composed(text)["defaults"]["env"] == {"A": "later", "B": "ours"}


def test_some_steps_and_parameters_of_a_file_are_imported_by_name_or_number(here: Path) -> None:
    write(
        here,
        "tools.yml",
        "parameters: {optional: [{name: level, type: Number, default: 3}, {name: other}]}\n"
        "commands: [{id: lint, shell: lint}, {shell: format}, {name: test, shell: test}]\n",
    )
    text = "imports: [{path: tools.yml, selective: [test, '1', level]}]\ncommands: [{shell: 'echo ${level}'}]\n"

    assert scripts(text) == ["echo ${inputs.level}", "test", "format"]
    assert composed(text)["inputs"] == {"level": {"type": "number", "default": 3}}


def test_an_alias_gives_a_file_a_name_and_one_that_nothing_uses_is_said(here: Path) -> None:
    write(here, "deploy.yml", "commands: [{shell: deploy}]\n")
    imports = "imports: [{path: deploy.yml, alias: production}]\n"

    assert scripts(imports + "extends: production\n") == ["deploy"]
    path = write(here, "flow.yml", imports + "commands: [{shell: a}]\n")
    assert [each.message for each in examine(path).warnings] == [
        "nothing uses the file that is imported as 'production': its steps do not run"
    ]


# -- extends ---------------------------------------------------------------------------------------------------------


def test_what_extends_a_file_has_its_keys_and_may_replace_them(here: Path) -> None:
    write(here, "bases/first.yml", "env: {A: a, B: b}\ncommands: [{shell: base}]\n")
    write(here, "second.yml", "extends: first\nenv: {B: second}\n")

    found = composed("name: mine\nextends: second.yml\nenv: {C: c}\n")
    assert (found["name"], found["defaults"]["env"]) == ("mine", {"A": "a", "B": "second", "C": "c"})
    assert scripts("extends: second\n") == ["base"]
    assert scripts("extends: second\nsteps: [{shell: own}]\n") == ["own"]


def test_a_mapreduce_workflow_may_extend_another(here: Path) -> None:
    write(
        here,
        "base.yml",
        "name: base\nmode: mapreduce\n"
        "map: {input: items.json, max_parallel: 3, agent_template: [{shell: 'echo ${item}'}]}\n",
    )

    found = composed("name: mine\nextends: base\nmap: {max_parallel: 5}\n")
    (mapped,) = [step for step in found["steps"] if "map" in step]
    assert mapped["map"]["max_parallel"] == 5


# -- templates -------------------------------------------------------------------------------------------------------


TEMPLATE = """\
parameters:
  required: [{name: target, type: String}, {name: version, type: string}]
  optional: [{name: seconds, type: number, default: 5}]
env: {WHERE: 'to ${target}'}
commands:
  - {id: deploy, shell: 'deploy ${target} ${version}', timeout: '${seconds}'}
  - {shell: verify}
"""


def test_a_template_has_the_values_of_its_user_as_defaults_of_inputs(here: Path) -> None:
    write(here, "templates/deployment.yml", TEMPLATE)
    text = "template: {source: deployment, with: {target: staging, seconds: 9}}\n"

    found = composed(text)
    assert found["inputs"] == {
        "version": {"type": "string"},
        "target": {"type": "string", "default": "staging"},
        "seconds": {"type": "number", "default": 9},
    }
    assert found["defaults"]["env"] == {"WHERE": "${'to ' + string(inputs.target)}"}
    (deploy,) = [step for step in found["steps"] if step["step"] == "deploy"]
    assert (deploy["shell"], deploy["timeout"]) == ("deploy ${inputs.target} ${inputs.version}", "9s")


def test_keys_of_a_template_may_be_overridden(here: Path) -> None:
    write(here, "t.yml", TEMPLATE.replace("'${seconds}'", "1"))
    override = "{env.WHERE: here, commands.0.timeout: 7, 'commands[1].shell': x}"
    text = f"template: {{source: {{file: t.yml}}, override: {override}}}\n"

    found = composed(text)
    (deploy,) = [step for step in found["steps"] if step["step"] == "deploy"]
    assert (deploy["timeout"], found["defaults"]["env"]["WHERE"]) == ("7s", "here")
    assert scripts(text)[1] == "x"
    assert scripts("template: {source: t.yml, override: {commands: [{shell: all}]}}\n") == ["all"]


def test_a_template_may_be_in_the_registry_of_the_user(here: Path) -> None:
    write(here, "home/.prodigy/templates/ci.yml", "commands: [{shell: ci}]\n")
    write(here, "project/.git/HEAD", "")

    path = write(here, "project/flow.yml", "template: {name: ci}\n")
    assert "ci" in [step.name for step in load(path).steps]


def test_defaults_are_values_of_parameters_and_variables_that_nothing_sets(here: Path) -> None:
    found = composed(
        "defaults: {A: base, B: 2, L: [1], n: 7}\nenv: {A: own}\n"
        "parameters: {required: [{name: n, type: number}]}\ncommands: [{shell: 'echo ${n}'}]\n"
    )

    assert found["defaults"]["env"] == {"A": "own", "B": "2", "L": "[1]"}
    assert found["inputs"] == {"n": {"type": "number", "default": 7}}


# -- what is not possible --------------------------------------------------------------------------------------------


def test_a_problem_in_another_file_is_shown_in_that_file(here: Path) -> None:
    write(here, "parts/base.yml", "name: base\ncommands:\n  - {shell: a, timeout: never}\n")

    said = refused("extends: parts/base.yml\n", here)

    assert said.startswith("error[language.type]: parts/base.yml:3:25: 'timeout' is 'never'")
    assert "  3 |   - {shell: a, timeout: never}\n" in said


def test_a_file_that_is_no_yaml_is_shown_at_its_own_place(here: Path) -> None:
    write(here, "base.yml", "a: [\n")

    assert "base.yml:2:1" in refused("extends: base\n", here)


REFUSED = {
    "extends: nothing\n": (
        "flow.yml:1:10: there is no file 'nothing', and none in 'bases/', 'templates/' and 'workflows/'",
        "write its path relative to this file",
    ),
    "imports: [{alias: a}]\n": ("flow.yml:1:11: an entry of 'imports' has no 'path'", "add 'path: …'"),
    "imports: [[]]\n": ("flow.yml:1:11: an entry of 'imports' is a list", ""),
    "imports: [3]\n": ("flow.yml:1:11: 'imports' is '3', the path of a file is expected", ""),
    "extends: flow.yml\n": ("flow.yml:1:10: the file includes itself: flow.yml → flow.yml", "remove one of them"),
    "extends: one\n": ("two.yml:1:10: the file includes itself: one.yml → two.yml → one.yml", "remove one of them"),
    "extends: ../outside.yml\n": ("flow.yml:1:10: '../outside.yml' is outside of 'FOLDER'", "copy the file into"),
    "extends: /etc/hostname\n": ("flow.yml:1:10: '/etc/hostname' is outside of 'FOLDER'", "copy the file into"),
    "extends: link.yml\n": ("flow.yml:1:10: 'link.yml' is outside of 'FOLDER'", "copy the file into the project"),
    "extends: deep0\n": ("files include each other more than 10 levels deep", "copy what is used into fewer files"),
    "template: 'https://example.org/t.yml'\n": ("flow.yml:1:11: a file from another host is not loaded", "download it"),
    "template: {with: {a: 1}}\n": ("flow.yml:1:11: 'template' has no 'source'", "add 'source: FILE'"),
    "template: {source: empty, with: 3}\n": ("flow.yml:1:33: 'with' is '3', a mapping is expected", ""),
    "template: {source: empty, override: {commands.7.shell: a}}\n": (
        "flow.yml:1:38: the template has no '7' to override",
        "name a key or the number of a step, from 0",
    ),
    "imports: [{path: empty.yml, selective: [buidl]}]\n": (
        "flow.yml:1:41: the file has no step or parameter 'buidl'",
        "did you mean 'build'?",
    ),
    "extends: word.yml\n": ("flow.yml:1:10: 'word.yml' is not a workflow", ""),
    "workflows: {a: {source: b}}\ncommands: [{shell: a}]\n": (
        "flow.yml:1:1: 'workflows' runs other workflows, which is not supported",
        "write 'imports: [FILE]' to run their steps here",
    ),
    "parameters: {required: [a, a]}\ncommands: [{shell: a}]\n": ("the parameter 'a' appears twice", "remove one"),
    "parameters: {n: {type: number, default: 11, validation: 'value <= 10'}}\ncommands: [{shell: a}]\n": (
        "flow.yml:1:41: the default of 'n' is '11', but must be <= 10",
        "its rule is 'value <= 10'",
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_composed_is_refused_in_words_with_the_place(text: str, here: Path) -> None:
    folder = here / "project"
    write(here, "outside.yml", "commands: [{shell: a}]\n")
    write(folder, "one.yml", "extends: two\n")
    write(folder, "two.yml", "extends: one\n")
    write(folder, "empty.yml", "commands: [{id: build, shell: a}]\n")
    write(folder, "word.yml", "a word\n")
    for number in range(12):
        write(folder, f"deep{number}.yml", f"extends: deep{number + 1}\n")
    (folder / "link.yml").symlink_to(here / "outside.yml")
    write(folder, ".git/HEAD", "")

    said = refused(text, folder)

    assert all(part in said for part in REFUSED[text]), said


# -- rules of parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("matches('^(dev|prod)$')", "dev", "test"),
        ("matches('^postgres://')", "postgres://x", "mysql://x"),
        ("value matches('a+')", "aa", "b"),
        ("^v\\d+$", "v1", "1"),
        ("in(['a', \"b\", 3])", 3, "c"),
        ("value in ['a']", "a", "b"),
        ("value >= 1 && value <= 10", 10, 11),
        ("n > 0 && n != 5", 4, 5),
        ("length(value) < 3", "ab", "abc"),
        ("value > 3", 4, "many"),
    ],
)
def test_the_rule_of_a_parameter_is_one_that_values_follow_or_break(rule: str, good: Any, bad: Any) -> None:
    rules = parse_rules(rule, "n")

    assert rules is not None
    assert find_problem(good, rules) == ""
    assert str(bad) in find_problem(bad, rules)


@pytest.mark.parametrize(
    "rule", ["", "is_prime(n)", "matches('(')", "in([])", "in([a])", "value", "n >", "|| value > 1"]
)
def test_other_rules_are_not_known(rule: str) -> None:
    assert parse_rules(rule, "n") is None


def test_listed_values_are_checked_before_the_run_and_other_rules_by_its_first_step(here: Path) -> None:
    found = composed(
        "parameters:\n  definitions:\n    where: {type: String, validation: \"matches('^(dev|prod)$')\"}\n"
        "    n: {type: Number, validation: value > 1}\ncommands: [{shell: 'echo ${where} ${n}'}]\n"
    )

    assert found["inputs"]["where"]["enum"] == ["dev", "prod"]
    first = found["steps"][0]
    assert (first["step"], first["args"]) == (
        "parameters",
        {"values": {"n": "${inputs.n}"}, "rules": {"n": [["value", ">", 1.0]]}},
    )
