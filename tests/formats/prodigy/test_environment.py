"""What is in the environment of Prodigy's commands: variables, files of them, secrets, profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import LanguageError

from .whole import refusal, tree

STEP = "commands: [{shell: 'true'}]\n"


def top(text: str) -> dict[str, Any]:
    found = tree(text + STEP)
    return {"env": found["defaults"].get("env"), **{key: found.get(key) for key in ("inputs", "secrets")}}


def test_variables_are_texts_whatever_they_are_written_as() -> None:
    text = "env: {A: a b, N: 3, F: 1.5, T: true, E: '', NOTHING: }\n"

    assert top(text)["env"] == {"A": "a b", "N": "3", "F": "1.5", "T": "true", "E": "", "NOTHING": ""}


def test_a_variable_may_be_made_of_those_before_it() -> None:
    found = top("env: {A: a, B: '${A}/b', C: '$B c', D: '$OTHER ${HOME}', E: \"it's ${A}\"}\n")["env"]

    assert found["B"] == "${string('a') + '/b'}"
    assert found["C"] == "${string(string('a') + '/b') + ' c'}"
    # What nobody has set stays as it is written.
    assert found["D"] == "$OTHER $${HOME}"
    assert found["E"] == "${'it\\'s ' + string('a')}"


def test_a_variable_of_the_worker_is_read_when_the_run_is() -> None:
    assert top("env: {A: '${env:USER}'}\n")["env"] == {"A": "${env.USER}"}


def test_secrets_are_variables_whose_values_are_hidden() -> None:
    found = top(
        "secrets:\n"
        "  A: ${env:A_KEY}\n"
        "  B: {provider: env, key: B_KEY}\n"
        "  C: {provider: file, key: c.txt}\n"
        "  D: {key: D_KEY}\n"
        "env: {E: {secret: true, value: $E_KEY}, F: {secret: false, value: plain}}\n"
    )

    assert found["secrets"] == {
        "A": {"env": "A_KEY"},
        "B": {"env": "B_KEY"},
        "C": {"file": "c.txt"},
        "D": {"env": "D_KEY"},
        "E": {"env": "E_KEY"},
    }
    assert found["env"] == {**{name: f"${{secrets.{name}}}" for name in "ABCDE"}, "F": "plain"}


def test_a_profile_is_chosen_by_an_input_and_holds_wherever_its_variables_are_read() -> None:
    found = top("env: {A: a, B: '${A}!'}\nprofiles: {dev: {A: x, description: for me}, prod: {C: 5}}\n")

    chosen = "(inputs.profile == 'dev' ? 'x' : 'a')"
    assert found["inputs"] == {
        "profile": {"default": "", "enum": ["", "dev", "prod"], "description": "dev: for me"},
    }
    assert found["env"] == {
        "A": f"${{{chosen}}}",
        "B": f"${{string({chosen}) + '!'}}",
        "C": "${(inputs.profile == 'prod' ? '5' : '')}",
    }


def test_a_command_computes_a_variable_in_a_step_at_the_start() -> None:
    found = tree("env: {N: {command: nproc, cache: true}, M: '${N}x', K: {command: 'get ${X}', secret: true}}\n" + STEP)

    computing, step = found["steps"][1], found["steps"][2]
    assert computing["step"] == "environment"
    assert computing["args"] == {"commands": {"N": "nproc"}}
    assert found["defaults"]["env"] == {"K": "${secrets.K}"}
    assert step["env"] == {"N": "${steps.environment.output.N}", "M": "${string(steps.environment.output.N) + 'x'}"}
    assert found["secrets"] == {"K": {"command": "get ${X}"}}


def test_the_branch_may_decide_a_variable() -> None:
    found = tree("env: {D: {condition: \"${branch} == 'main'\", when_true: production, when_false: staging}}\n" + STEP)

    branch = "steps.worktree.output.target"
    text = f"({branch} == null ? '' : string({branch})) == 'main'"
    assert found["steps"][1]["env"] == {"D": f"${{({text} ? 'production' : 'staging')}}"}


# -- files of variables ----------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_has_a_variable_per_line_and_what_the_workflow_says_itself_holds(here: Path) -> None:
    (here / ".env").write_text("# a comment\n\nA=1\nexport B = 'b c'\nC=\"d # e\"\nD=x # why\nE=\n")

    found = top("env_files: [.env]\nenv: {A: mine}\n")["env"]

    assert found == {"A": "mine", "B": "b c", "C": "d # e", "D": "x", "E": ""}


def test_what_is_called_a_secret_in_a_file_is_read_by_workers_alone(here: Path) -> None:
    (here / "my.env").write_text("API_TOKEN=sesame\nPORT=80\n")

    found = top("env_files: my.env\n")

    assert found["secrets"] == {"API_TOKEN": {"command": 'set -a; . ./my.env; printf %s "$API_TOKEN"'}}
    assert found["env"] == {"API_TOKEN": "${secrets.API_TOKEN}", "PORT": "80"}
    assert "sesame" not in str(found)


def test_a_file_is_looked_for_beside_the_workflow_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\n")

    found = tree(f"env_files: [.env]\n{STEP}", str(tmp_path / "flow.yml"))

    assert found["defaults"]["env"] == {"A": "1"}


def test_an_env_file_that_cannot_be_read_is_refused_by_name(here: Path) -> None:
    with pytest.raises(LanguageError) as caught:
        top("env_files: [/proc/self/mem]\n")  # a file that nobody can read from its beginning

    (problem,) = caught.value.problems
    assert (problem.code, problem.message) == (
        "language.prodigy",
        "'/proc/self/mem' cannot be read: input/output error",
    )


# -- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "a line that sets nothing": (
        "env_files: [bad.env]\n",
        "error[language.prodigy]: flow.yml:1:13: line 2 of 'bad.env' is not NAME=VALUE\n"
        "  1 | env_files: [bad.env]\n"
        "    |             ^^^^^^^",
    ),
    "a vault": (
        "secrets: {A: {provider: vault, key: x}}\n",
        "error[language.prodigy]: flow.yml:1:25: secrets of the provider 'vault' are not supported\n"
        "  1 | secrets: {A: {provider: vault, key: x}}\n"
        "    |                         ^^^^^ set an environment variable and write 'provider: env', "
        "or convert the file and write '{command: …}'",
    ),
    "a secret with a version": (
        "secrets: {A: {provider: env, key: x, version: 2}}\n",
        "error[language.prodigy]: flow.yml:1:38: a secret of the provider 'env' has no version\n"
        "  1 | secrets: {A: {provider: env, key: x, version: 2}}\n"
        "    |                                      ^^^^^^^ remove it",
    ),
    "a provider that nobody knows": (
        "secrets: {A: {provider: envv, key: x}}\n",
        "error[language.choice]: flow.yml:1:25: 'provider' is 'envv'; one of 'env', 'file', 'vault', 'aws' or 'custom' "
        "is expected\n"
        "  1 | secrets: {A: {provider: envv, key: x}}\n"
        "    |                         ^^^^ did you mean 'env'?",
    ),
    "a variable that is a list": (
        "env: {A: [1]}\n",
        "error[language.type]: flow.yml:1:10: 'A' in 'env' is a list, a text, a number, true, false, a secret, "
        "a command or a condition is expected\n"
        "  1 | env: {A: [1]}\n"
        "    |          ^",
    ),
    "two sources of a value": (
        "env: {A: {command: a, value: b}}\n",
        "error[language.prodigy]: flow.yml:1:11: 'A' has 'value' and 'command'\n"
        "  1 | env: {A: {command: a, value: b}}\n"
        "    |           ^^^^^^^ write one of 'value', 'command' or 'condition'",
    ),
    "half a condition": (
        "env: {A: {condition: 'true', when_true: b}}\n",
        "error[language.missing_key]: flow.yml:1:10: 'A' has a 'condition' but no 'when_false'\n"
        "  1 | env: {A: {condition: 'true', when_true: b}}\n"
        "    |          ^ add 'when_false: …'",
    ),
    "a cached text": (
        "env: {A: {value: a, cache: true}}\n",
        "error[language.stray_key]: flow.yml:1:21: 'cache' does not belong to 'value'\n"
        "  1 | env: {A: {value: a, cache: true}}\n"
        "    |                     ^^^^^ remove it",
    ),
    "a profile that would show a secret": (
        "secrets: {A: '${env:A}'}\nprofiles: {dev: {A: x}}\n",
        "error[language.secret]: flow.yml:2:21: 'A' is a secret, and the value in a profile would be readable\n"
        "  2 | profiles: {dev: {A: x}}\n"
        "    |                     ^",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_where_what_and_what_to_do(text: str, said: str, here: Path) -> None:
    (here / "bad.env").write_text("A=1\nnothing\n")

    assert refusal(text + STEP, here) == said


@pytest.mark.parametrize("text", ["secrets: {A: sesame}\n", "env: {A: {secret: true, value: sesame}}\n"])
def test_a_secret_that_is_written_in_the_file_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    said = refusal(text + STEP, tmp_path)

    assert "the secret 'A' is written in the file" in said
    assert "set it as an environment variable and write '${env:A}' here" in said
    assert "sesame" not in said
