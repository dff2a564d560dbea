"""`mulligan validate` and `mulligan schema`: good files, bad files, and no files at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import mulligan

GOOD = """\
name: release
inputs:
  target: {type: string, default: staging}
steps:
  - {step: build, shell: "make ${inputs.target}"}
  - {step: deploy, needs: [build], shell: ./deploy.sh, next: [{to: repair, on: failure, then: rerun}]}
  - {step: repair, shell: ./repair.sh}
"""
SMALL = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
DOUBTFUL = """\
steps:
  - {step: fetch, shell: ./fetch.sh, retry: {rules: [{codes: [TIMEOUTS]}]}}
"""
BAD = """\
name: nightly
steps:
  - step: fetch
    shell: ./fetch.sh
  - step: load
    shell: ./load.sh
    needs: [fetchh]
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages name files as the user does, so the tests stand where the files are."""
    monkeypatch.chdir(tmp_path)


def file(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_a_good_file_is_told_with_its_size():
    result = mulligan("validate", file("release.yaml", GOOD))

    assert (result.code, result.err) == (0, "")
    assert result.out == "release.yaml: ok, 3 steps, 2 edges, 1 input\n"


def test_one_step_is_no_plural_and_nothing_is_not_counted():
    result = mulligan("validate", file("hello.yaml", SMALL))

    assert result.out == "hello.yaml: ok, 1 step\n"


def test_a_bad_file_is_refused_with_its_place_on_stderr():
    result = mulligan("validate", file("nightly.yaml", BAD))

    assert (result.code, result.out) == (2, "")
    assert (
        result.err
        == """\
error[language.unknown_step]: nightly.yaml:7:13: step 'load' needs 'fetchh', which is not a step
  7 |     needs: [fetchh]
    |             ^^^^^^ did you mean 'fetch'?
"""
    )


def test_one_bad_file_among_good_ones_is_refused_and_the_others_are_told():
    result = mulligan("validate", file("a.yaml", SMALL), file("b.yaml", BAD), file("c.yaml", SMALL))

    assert result.code == 2
    assert result.out == "a.yaml: ok, 1 step\nc.yaml: ok, 1 step\n"
    assert result.err.startswith("error[language.unknown_step]: b.yaml:7:13: ")


def test_json_of_a_good_file_is_one_object():
    result = mulligan("validate", "--json", file("release.yaml", GOOD))

    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == {
        "ok": True,
        "file": "release.yaml",
        "format": "mulligan",
        "name": "release",
        "steps": 3,
        "problems": [],
        "warnings": [],
    }


def test_json_of_a_bad_file_has_its_problems_and_stderr_is_silent():
    result = mulligan("validate", file("nightly.yaml", BAD), "--json")

    assert (result.code, result.err) == (2, "")
    assert json.loads(result.out) == {
        "ok": False,
        "file": "nightly.yaml",
        "format": None,
        "name": None,
        "steps": None,
        "problems": [
            {
                "code": "language.unknown_step",
                "message": "step 'load' needs 'fetchh', which is not a step",
                "file": "nightly.yaml",
                "line": 7,
                "column": 13,
                "hint": "did you mean 'fetch'?",
            }
        ],
        "warnings": [],
    }


def test_a_good_file_with_a_slip_is_warned_about_on_stderr_and_stays_good():
    result = mulligan("validate", file("nightly.yaml", DOUBTFUL))

    assert (result.code, result.out) == (0, "nightly.yaml: ok, 1 step\n")
    assert (
        result.err
        == """\
warning[language.misspelt_code]: nightly.yaml:2:63: no failure has the code 'TIMEOUTS' unless a step reports it
  2 |   - {step: fetch, shell: ./fetch.sh, retry: {rules: [{codes: [TIMEOUTS]}]}}
    |                                                               ^^^^^^^^ did you mean 'TIMEOUT'?
"""
    )


def test_json_of_a_good_file_with_a_slip_has_its_warnings_and_stderr_is_silent():
    result = mulligan("validate", "--json", file("nightly.yaml", DOUBTFUL))

    answer = json.loads(result.out)
    assert (result.code, result.err) == (0, "")
    assert (answer["ok"], answer["problems"]) == (True, [])
    assert answer["warnings"] == [
        {
            "code": "language.misspelt_code",
            "message": "no failure has the code 'TIMEOUTS' unless a step reports it",
            "file": "nightly.yaml",
            "line": 2,
            "column": 63,
            "hint": "did you mean 'TIMEOUT'?",
        }
    ]


def test_a_model_without_its_key_or_its_file_is_warned_about(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MULLIGAN_SCRIPTED_AGENT", "answers.yaml")
    agents = [f"{{step: {name}, agent: {{provider: {name}, prompt: Hi}}}}" for name in ("openai", "scripted", "robot")]

    result = mulligan("validate", file("ask.yaml", f"name: ask\nsteps: [{', '.join(agents)}]\n"))

    assert (result.code, result.out) == (0, "ask.yaml: ok, 3 steps\n")
    # A command may be there only where the worker runs.
    assert "robot" not in result.err
    assert "warning[agent]: ask.yaml: agent 'openai' has no key: environment variable 'OPENAI_API_KEY'" in result.err
    assert "agent 'scripted' has no answers: there is no file" in result.err


def test_json_of_several_files_is_an_array_in_their_order():
    result = mulligan("validate", "--json", file("b.yaml", SMALL), file("a.yaml", BAD))

    assert result.code == 2
    assert [(answer["file"], answer["ok"]) for answer in json.loads(result.out)] == [
        ("b.yaml", True),
        ("a.yaml", False),
    ]


def test_a_missing_file_is_told_in_words():
    result = mulligan("validate", "missing.yaml")

    assert (result.code, result.out) == (2, "")
    assert result.err == "error[language.unreadable]: missing.yaml: there is no such file\n"


def test_a_misspelt_file_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    for name in ("flows/nightly.yaml", "flows/other.yaml", "pipeline.py"):
        (tmp_path / name).write_text("steps: [{step: a, shell: echo}]")

    hints = [mulligan("validate", name).err.splitlines()[1:] for name in ("flows/nigthly.yml", "pipline.py", "x.yaml")]

    assert hints == [["  did you mean 'flows/nightly.yaml'?"], ["  did you mean 'pipeline.py'?"], []]


def test_a_missing_file_is_a_problem_in_json_too():
    result = mulligan("validate", "--json", "missing.yaml")

    assert result.code == 2
    assert json.loads(result.out)["problems"] == [
        {
            "code": "language.unreadable",
            "message": "there is no such file",
            "file": "missing.yaml",
            "line": 0,
            "column": 0,
            "hint": "",
        }
    ]


def test_a_folder_is_not_a_file():
    Path("folder").mkdir()

    result = mulligan("validate", "folder")

    assert (result.code, result.out) == (2, "")
    assert result.err == "error[language.unreadable]: folder: this is a folder, not a file\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_file_without_permission_is_told_in_words():
    Path(file("secret.yaml", SMALL)).chmod(0)

    result = mulligan("validate", "secret.yaml")

    assert result.code == 2
    assert result.err == "error[language.unreadable]: secret.yaml: the file may not be read\n"


def test_a_path_through_a_file_is_told_in_words():
    file("hello.yaml", SMALL)

    result = mulligan("validate", "hello.yaml/inside.yaml")

    assert result.code == 2
    assert result.err == "error[language.unreadable]: hello.yaml/inside.yaml: the file cannot be read\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01\x02",
        b"\xff\xfe\xfa",
        b"{",
        b"- a\n- b\n",
        b"42",
        b"a: &x [*x]",
        b"[" * 5000,
        b"\xef\xbb\xbf",
        b"---\n---\n",
    ],
    ids=["empty", "control", "not utf-8", "open brace", "list", "number", "self", "deep", "bom", "documents"],
)
def test_no_file_whatever_is_in_it_is_a_bug(content: bytes):
    Path("odd.yaml").write_bytes(content)

    result = mulligan("validate", "odd.yaml")

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[") and "error[internal" not in result.err
    assert "Traceback" not in result.err


def test_a_file_name_that_is_no_text_is_shown_as_its_bytes():
    name = os.fsdecode(b"caf\xe9.yaml")
    file(name, SMALL)

    result = mulligan("validate", name)

    assert (result.code, os.fsencode(result.out)) == (0, b"caf\xe9.yaml: ok, 1 step\n")


# Schema


def test_the_schema_is_one_json_object_on_stdout():
    result = mulligan("schema")

    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schema_is_json_whether_asked_or_not():
    assert mulligan("schema", "--json").out == mulligan("schema").out


def test_the_schema_can_go_to_a_file():
    result = mulligan("schema", "--out", "mulligan.schema.json")

    assert (result.code, result.out, result.err) == (0, "", "wrote mulligan.schema.json\n")
    assert Path("mulligan.schema.json").read_text() == mulligan("schema").out


def test_a_place_that_cannot_be_written_is_refused():
    result = mulligan("schema", "--out", "no/such/folder.json")

    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[file.unwritable]: 'no/such/folder.json' cannot be written: no such file or directory\n"
    )
