"""Whose a file is: told by what is in it, and never a file of ours for anybody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mulligan.errors import InputInvalid, LanguageError
from mulligan.formats import FORMATS, examine
from mulligan.formats.recognition import check_system, recognize
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Source

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
OURS = sorted(EXAMPLES.glob("*.yaml"))
ENVIRON = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}

FOREIGN = [
    # Torc: its jobs; a file that lost them is still its.
    ("torc", "name: sweep\njobs: []"),
    ("torc", "name: sweep\njobs:\n  - {name: a, command: echo}"),
    ("torc", "name: sweep\nfailure_handlers: []"),
    ("torc", "name: sweep\njobs:\nresource_requirements: []"),
    # NoETL: its apiVersion, or its list of steps, which have our word for a name.
    ("noetl", "apiVersion: noetl.io/v1"),
    ("noetl", "apiVersion: noetl.io/v2\nkind: Playbook\nworkflow: [{step: start}]"),
    ("noetl", "metadata: {name: x}\nworkflow: [{step: start, next: [{step: end}]}]"),
    # Alphred: the draft, what is left of one, and the older form.
    ("alphred", '{"treeKey": "design"}'),
    ("alphred", '{"name": "x", "nodes": [], "edges": []}'),
    ("alphred", '{"name": "x", "version": 1, "phases": [{"name": "a"}]}'),
    # Prodigy: the forms of a regular workflow.
    ("prodigy", "- shell: make"),
    ("prodigy", "- claude: /fix"),
    ("prodigy", "- /prodigy-code-review"),
    ("prodigy", "- prodigy-lint"),
    ("prodigy", "- name: prodigy-lint\n- shell: make"),
    ("prodigy", "commands:\n  - shell: make"),
    ("prodigy", "name: x\ntasks:\n  - name: Build\n    shell: make"),
    ("prodigy", "steps:\n  - shell: make\n  - claude: /fix"),
    ("prodigy", "steps:\n  - /fix"),
    ("prodigy", "steps:\n  - shell: make\n    on_failure: {claude: /fix, max_attempts: 3}"),
    ("prodigy", "steps:\n  - shell: make\n    on_failure: [{claude: /look}, {shell: make}]"),
    ("prodigy", "steps:\n  - shell: make\n    retry: {attempts: 5, retry_budget: 5m}"),
    ("prodigy", "steps:\n  - shell: make\n    working_dir: ./frontend"),
    # Prodigy: MapReduce, with or without its mode.
    ("prodigy", "name: x\nmode: mapreduce\nmap: {input: a.json}"),
    ("prodigy", "name: x\nmap:\n  input: a.json\n  agent_template: [{shell: echo}]"),
]
# Ours, and nobody's, whatever words of others are in it.
NOT_FOREIGN = [
    "steps:\n  - {step: a, shell: echo}",
    # Keys of others in a file of ours are slips, and refused as such.
    "jobs: []\nsteps:\n  - {step: a, shell: echo}",
    "steps:\n  - {shell: echo}\n  - {step: a, claude: /fix}",
    "name: x",
    "steps: []",
    "steps:\n  - shell: make",
    "jobs: {build: {steps: []}}",
    "workflow: child.yaml",
    "nodes: 3",
    "mode: fast\nsteps:\n  - {step: a, shell: echo}",
    "- hosts: all\n  tasks: []",
    "- a\n- b",
    "a text",
    "42",
]


@pytest.mark.parametrize(("system", "text"), FOREIGN)
def test_a_file_is_told_by_what_is_in_it(system: str, text: str) -> None:
    assert recognize(parse(Source(text, "x.yaml"))) == system


@pytest.mark.parametrize("text", NOT_FOREIGN)
def test_what_is_ours_or_nobodys_is_nobody_elses(text: str) -> None:
    assert recognize(parse(Source(text, "x.yaml"))) == ""


def test_no_example_of_ours_is_taken_for_another_systems() -> None:
    found = {path.name: recognize(parse(decode(path.read_bytes(), str(path)))) for path in OURS}

    assert found == dict.fromkeys(found, "")


def test_a_large_file_of_ours_is_told_by_its_first_step() -> None:
    root = parse(Source("steps:\n  - {step: a, shell: echo}\n" + "  - {shell: echo}\n" * 10, "x.yaml"))
    steps = root.get("steps")  # type: ignore[union-attr]
    steps.items = _OnlyTheFirst(steps.items)  # type: ignore[union-attr]

    assert recognize(root) == ""


class _OnlyTheFirst(list):  # type: ignore[type-arg]
    """A list of which nobody may look at more than one entry."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        yield self[0]
        raise AssertionError("the second one was looked at")


def test_a_run_of_ours_pays_for_no_reader_of_others_and_a_second_one_for_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("steps:\n  - {step: a, shell: echo}\n")
    program = (
        "import sys\n"
        "from mulligan.cli.words.dispatch import exit_code\n"
        "assert exit_code(['run', 'flow.yaml']) == 0\n"
        "print(*[name for name in sys.modules if name.startswith('mulligan.formats.')], 'jinja2' in sys.modules)\n"
    )

    environ = {**ENVIRON, "MULLIGAN_CACHE": str(tmp_path / "cache")}
    done = [
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True)
        for _ in range(2)
    ]

    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    always = ["False", "mulligan.formats.reading", "mulligan.formats.table"]
    ours = ["mulligan.formats.loading", "mulligan.formats.recognition", "mulligan.formats.translation"]
    assert [sorted(one.stdout.split()) for one in done] == [sorted([*always, *ours]), always]


# What is said where nobody knows it


def refusal(text: str, named: str | None = None) -> str:
    with pytest.raises(LanguageError) as refused:
        examine("build.yaml", text=text, named=named)
    return refused.value.render()


def test_steps_without_names_may_be_prodigys() -> None:
    assert (
        refusal("steps:\n  - shell: make\n  - shell: make test\n")
        == """\
error[language.missing_key]: build.yaml:2:5: the step has no name
  2 |   - shell: make
    |     ^ add 'step: NAME'; steps of a Prodigy file have no name: if it is one, --format prodigy
error[language.missing_key]: build.yaml:3:5: the step has no name
  3 |   - shell: make test
    |     ^ add 'step: NAME'"""
    )


def test_a_list_may_be_prodigys() -> None:
    assert (
        refusal("- lint\n- fix\n")
        == """\
error[language.type]: build.yaml:1:1: a workflow is a mapping, and this is a list
  1 | - lint
    | ^ put the list under 'steps:'; if these are steps of Prodigy: --format prodigy"""
    )


def test_a_file_of_nobody_whom_we_know_is_told_so() -> None:
    assert (
        refusal("name: ci\njobs:\n  build: {runs-on: x}\n") == """\
error[language.unknown_key]: build.yaml:2:1: 'jobs' is not a key of the workflow
  2 | jobs:
    | ^^^^ did you mean 'steps'? the file is not recognized as one of ours, Torc, NoETL, Alphred, Prodigy; """
        "if it is: --format SYSTEM"
    )


def test_a_file_of_ours_that_is_refused_is_told_nothing_of_others() -> None:
    assert (
        refusal("steps:\n  - {step: a, shell: echo, claude: /fix}\n")
        == """\
error[language.unknown_key]: build.yaml:2:28: 'claude' is not a key of step 'a'
  2 |   - {step: a, shell: echo, claude: /fix}
    |                            ^^^^^^ did you mean 'agent'?"""
    )


@pytest.mark.parametrize("system", FORMATS)
def test_a_file_that_is_not_of_the_system_named_is_refused_with_its_place(system: str) -> None:
    said = refusal(json.dumps({"steps": [{"step": "a", "shell": "echo"}]}), named=system)

    assert said.startswith("error[language.") and "build.yaml:1:" in said


def test_a_file_that_looks_like_anothers_is_told_so() -> None:
    ours = refusal("steps:\n  - {step: a, shell: echo}\n", named="noetl")
    theirs = refusal("name: x\njobs: []\n", named="mulligan")

    assert (
        ours
        == """\
error[language.missing_key]: build.yaml:1:1: the playbook has no 'workflow'
  1 | steps:
    | ^ add 'workflow: …'; it looks like a file of Mulligan: --format mulligan
error[language.unknown_key]: build.yaml:1:1: 'steps' is not a key of the playbook
  1 | steps:
    | ^^^^^ did you mean 'workflow'?"""
    )
    assert (
        theirs
        == """\
error[language.unknown_key]: build.yaml:2:1: 'jobs' is not a key of the workflow
  2 | jobs: []
    | ^^^^ did you mean 'steps'? it looks like a file of Torc: --format torc"""
    )


@pytest.mark.parametrize("system", FORMATS)
def test_a_python_file_is_of_no_other_system(system: str, tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    path.write_text("import mulligan\n")

    with pytest.raises(LanguageError) as refused:
        examine(path, named=system)

    assert refused.value.render() == (
        f"error[language.format]: {path}: this is a Python file, and {FORMATS[system].title} has none"
    )


def test_a_system_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputInvalid) as refused:
        check_system("airflow")

    assert (refused.value.message, refused.value.hint) == (
        "'airflow' is not a known format",
        "known formats: torc, noetl, alphred, prodigy, and mulligan for our own",
    )
