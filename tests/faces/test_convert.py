"""`mulligan convert`, and `--format`: other systems' files at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, workflow

from mulligan.core.model.workflow import encode
from mulligan.language import load

TORC = """\
name: sweep
jobs:
  - name: prepare
    command: echo ready
  - name: work
    command: echo done
    depends_on: [prepare]
"""
OURS = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
NAMELESS = "name: nightly\nsteps:\n  - shell: echo one\n  - shell: echo two\n"

pytestmark = pytest.mark.usefixtures("folder")


def steps(said: Said) -> dict[str, str]:
    assert said.code == 0, said.err
    return {name: step["status"] for name, step in said.json["steps"].items()}


# Convert


def test_what_is_written_runs_as_the_file_does() -> None:
    as_it_is = mulligan("run", workflow(TORC, "sweep.yaml"), "--json")

    said = mulligan("convert", "sweep.yaml", "-o", "ours.yaml")

    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines()[-2:] == [
        "wrote ours.yaml",
        "what happens to it when something fails: mulligan coverage ours.yaml",
    ]
    assert Path("ours.yaml").read_text().startswith("# Converted from sweep.yaml (Torc) by `mulligan convert`.\n")
    assert steps(mulligan("run", "ours.yaml", "--json")) == steps(as_it_is)


def test_a_file_that_is_there_is_kept_unless_that_is_said() -> None:
    workflow(TORC, "sweep.yaml")
    Path("ours.yaml").write_text("mine\n")

    said = mulligan("convert", "sweep.yaml", "-o", "ours.yaml")

    assert (said.code, Path("ours.yaml").read_text()) == (2, "mine\n")
    assert said.err == ("error[usage]: 'ours.yaml' exists, and may have been edited\n  to overwrite it: --force\n")
    assert mulligan("convert", "sweep.yaml", "-o", "ours.yaml", "--force").code == 0
    assert "step: prepare" in Path("ours.yaml").read_text()


def test_it_is_written_to_standard_output_where_no_file_is_named() -> None:
    mulligan("convert", workflow(TORC, "sweep.yaml"), "-o", "ours.yaml")

    said = mulligan("convert", "sweep.yaml")

    assert (said.code, said.out) == (0, Path("ours.yaml").read_text())


def test_as_json_the_text_comes_with_what_is_known_of_it() -> None:
    text = mulligan("convert", workflow(TORC, "sweep.yaml")).out

    said = mulligan("convert", "sweep.yaml", "--json")

    assert (said.code, said.err) == (0, "")
    assert {**said.json, "warnings": []} == {
        "file": "sweep.yaml",
        "format": "torc",
        "out": None,
        "text": text,
        "warnings": [],
    }


def test_a_file_of_ours_is_written_as_it_is() -> None:
    said = mulligan("convert", workflow(OURS, "hello.yaml"))

    assert said == (0, OURS, "'hello.yaml' is already a Mulligan workflow, and is written unchanged\n")


def test_a_python_file_becomes_the_workflow_that_it_builds() -> None:
    text = "from mulligan import Workflow\n\nflow = Workflow('hello')\nflow.step('greet', shell='echo hello')\n"

    said = mulligan("convert", workflow(text, "hello.py"))

    assert said == (
        0,
        "# Made from hello.py by `mulligan convert`.\n\n"
        "name: hello\n\nsteps:\n  - step: greet\n    shell: echo hello\n",
        "",
    )


def test_a_flow_is_published_and_so_is_the_file_that_it_is_converted_to() -> None:
    written = workflow(
        "from mulligan import flow, step\n\n"
        "@step(retry=2, timeout='1m')\ndef fetch(day: str) -> list:\n    return [day]\n\n"
        "@fetch.handler\ndef nothing(failure):\n    return []\n\n"
        "@step\ndef load(row: str, day: str) -> str:\n    return row\n\n"
        "@flow\ndef nightly(day: str, table: str = 'facts'):\n"
        '    """Load a day."""\n    loaded = load.map(fetch(day), day, on_item_failure=\'collect\')\n'
        "    return {'count': loaded.succeeded, 'table': table}\n",
        "nightly.py",
    )
    first = mulligan("publish", written)

    mulligan("convert", written, "-o", "workflow.yaml")
    published = mulligan("publish", "workflow.yaml")
    said = [mulligan("run", f"nightly@{version}", "-i", "day=monday") for version in (1, 2)]

    assert first.plain == (0, "published 'nightly' as version 1\n", "to start it: mulligan run nightly@1\n")
    assert published.out == "published 'nightly' as version 2\n"
    assert [(one.code, one.json) for one in said] == [(0, {"count": 1, "table": "facts"})] * 2


@pytest.mark.nightly
def test_a_flow_and_what_it_is_converted_to_are_the_same_workflow() -> None:
    written = workflow(
        "from datetime import timedelta\nfrom mulligan import branch, flow, group, http, secret, shell, step\n\n"
        "ENV = {'A': 'yes', 'B': '007', 'C': 'null', 'D': '# no', 'E': 'a: b', 'F': ' x ', 'G': '', 'H': '$${x}'}\n\n"
        "@step(timeout=timedelta(minutes=3), env=ENV)\n"
        "def check(x: float, y: bool = True) -> dict:\n    return {}\n\n"
        "@flow(max_parallel=3)\ndef odd(n: int = 3, ratio: float = 1e-9, on: bool = False):\n"
        "    found = check(1.5, False)\n"
        "    with group('publish', retry=2):\n"
        "        one = shell('one', 'set -e\\necho \"two: lines\"   \\n\\techo tab\\n')\n"
        "        shell('two', f'echo {one}')\n"
        "    branch(found['ok'] == 1, lambda: shell('yes', 'echo yes'), lambda: shell('no', 'echo no'))\n"
        "    token = secret('token', env='TOKEN')\n"
        "    http('get', 'https://shop.invalid/?q=1', headers={'X': token}, json=[1, 2.0, None, 'on'])\n"
        "    return {'found': found}\n",
        "odd.py",
    )

    mulligan("convert", written, "-o", "odd.yaml")

    assert encode(load("odd.yaml")) == encode(load("odd.py"))


def test_a_flow_that_calls_another_flow_is_not_converted() -> None:
    written = workflow(
        "from mulligan import flow, shell\n\n"
        "@flow\ndef child():\n    shell('say', 'echo hello')\n\n"
        "@flow\ndef parent():\n    child()\n",
        "parent.py",
    )

    said = mulligan("convert", written, "-o", "workflow.yaml")

    assert (said.code, said.err, Path("workflow.yaml").exists()) == (
        2,
        "error[language.python]: parent.py: 'parent' calls the flow 'child', and a workflow file calls only files\n"
        "  call the steps of that flow here, as a group\n",
        False,
    )


def test_a_file_without_a_name_of_its_own_keeps_that_of_its_file() -> None:
    workflow("- shell: echo one\n", "nightly.yml")

    said = mulligan("convert", "nightly.yml")

    assert said.out.splitlines()[2] == "name: nightly"


def test_the_file_itself_is_never_written() -> None:
    said = mulligan("convert", workflow(TORC, "sweep.yaml"), "-o", "../" + Path.cwd().name + "/sweep.yaml")

    assert (said.code, Path("sweep.yaml").read_text()) == (2, TORC)
    assert said.err == (
        f"error[usage]: '../{Path.cwd().name}/sweep.yaml' is the file to convert\n  name another file for the result\n"
    )


def test_what_is_refused_is_not_written() -> None:
    workflow(TORC.replace("[prepare]", "[prepaer]"), "sweep.yaml")

    said = mulligan("convert", "sweep.yaml", "-o", "ours.yaml")

    assert (said.code, Path("ours.yaml").exists()) == (2, False)
    assert "sweep.yaml:7:18: " in said.err and "did you mean 'prepare'?" in said.err


# --format


def test_a_file_that_could_be_anybodys_is_read_as_it_is_said_to_be() -> None:
    workflow(NAMELESS, "nightly.yaml")

    told = mulligan("validate", "nightly.yaml")
    said = mulligan("run", "nightly.yaml", "--format", "prodigy", "--json")

    assert (told.code, "--format prodigy" in told.err) == (2, True)
    assert set(steps(said).values()) == {"completed"}


def test_validate_says_whose_file_it_is() -> None:
    said = mulligan("validate", workflow(TORC, "sweep.yaml"))

    assert (said.code, said.out) == (0, "sweep.yaml: ok, a Torc file: 2 steps, 1 edge, 1 input\n")
    assert said.err == "what happens to it when something fails: mulligan coverage sweep.yaml\n"


def test_validate_says_whose_file_it_is_in_json_too() -> None:
    said = mulligan("validate", "--json", workflow(TORC, "sweep.yaml"))

    assert (said.json["ok"], said.json["format"]) == (True, "torc")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "sweep.yaml"),
        ("validate", "sweep.yaml"),
        ("step", "sweep.yaml", "work"),
        ("convert", "sweep.yaml"),
        ("fork", "1", "--from", "work", "--file", "sweep.yaml"),
    ],
)
def test_a_system_that_nobody_knows_is_refused_with_those_that_there_are(words: tuple[str, ...]) -> None:
    mulligan("run", workflow(TORC, "sweep.yaml"))

    said = mulligan(*words, "--format", "airflow")

    assert said == (
        2,
        "",
        "error[input.invalid]: 'airflow' is not a known format\n"
        "  known formats: torc, noetl, alphred, prodigy, and mulligan for our own\n",
    )


def test_one_step_of_a_foreign_file_runs_alone() -> None:
    said = mulligan("step", workflow(TORC, "sweep.yaml"), "work", "--format", "torc")

    assert (said.code, said.out) == (0, "done\n")


def test_a_fork_may_take_a_corrected_foreign_file() -> None:
    mulligan("run", workflow(TORC.replace("echo done", "exit 3"), "sweep.yaml"))

    workflow(TORC, "corrected.yaml")
    said = mulligan("fork", "1", "--from", "work", "--file", "corrected.yaml", "--format", "torc", "--json")

    assert steps(said) == {"prepare": "completed", "work": "completed"}


def test_a_fork_without_a_file_has_no_format() -> None:
    mulligan("run", workflow(TORC, "sweep.yaml"))

    said = mulligan("fork", "1", "--from", "work", "--format", "torc")

    assert said == (2, "", "error[usage]: --format needs --file\n  name the file: --file FILE\n")


def test_a_graph_may_be_told_both_the_picture_and_the_system() -> None:
    workflow(TORC, "sweep.yaml")

    said = mulligan("graph", "sweep.yaml", "--format", "torc", "--format", "mermaid")

    assert (said.code, said.out) == (0, mulligan("graph", "sweep.yaml").out)


@pytest.mark.parametrize("words", [("svg", "png"), ("torc", "noetl")])
def test_a_graph_is_told_each_of_them_once(words: tuple[str, str]) -> None:
    said = mulligan("graph", workflow(TORC, "sweep.yaml"), "--format", words[0], "--format", words[1])

    assert said == (
        2,
        "",
        f"error[usage]: --format cannot be both '{words[0]}' and '{words[1]}'\n  leave one of them out\n",
    )


def test_a_file_that_has_changed_is_read_as_what_the_run_took_it_for() -> None:
    mulligan("run", workflow(NAMELESS.replace("echo two", "exit 3"), "nightly.yaml"), "--format", "prodigy")

    workflow("# the same again\n" + Path("nightly.yaml").read_text(), "nightly.yaml")
    same = mulligan("retry", "1", "--dry-run")
    workflow(NAMELESS, "nightly.yaml")
    changed = mulligan("retry", "1", "--dry-run")

    assert "note: 'nightly.yaml' has changed" not in same.err
    assert "note: 'nightly.yaml' has changed" in changed.err
