"""Completion: what is suggested for a word at a prompt, and how each shell is answered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.support.commands import SRC, mulligan, ran

from mulligan.cli.words.completion import TABLE, answer, suggest
from mulligan.cli.words.completion_scripts import SCRIPTS
from mulligan.cli.words.completion_table import table

SWEEP = """\
name: sweep
steps:
  - {step: "mesh_{n}", matrix: {n: [1, 2]}, shell: echo}
  - {step: all, map: {over: [1]}, do: echo}
  - {step: ask, approve: {message: "Go on?", timeout: 10ms, default: approve}, next: end}
"""


def suggested(*words: str) -> list[str]:
    """What is suggested for the last of the words."""
    *before, start = words
    return [word for word, _ in suggest(before, start, os.environ) if word.startswith(start)]


def asked(shell: str, line: str, **more: str) -> tuple[int | None, str]:
    """The exit code and the answer to a shell that asks about a line."""
    words = line.split(" ")
    environ = {
        **os.environ,
        "_MULLIGAN_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        **more,
    }
    answers: list[str] = []
    code = answer(environ, answers.append)
    return code, "".join(answers)


def test_the_table_of_words_is_what_the_commands_take() -> None:
    written = Path(TABLE).read_text(encoding="utf-8")

    assert written == table(), "write it anew with: python -m mulligan.cli.words.completion_table"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["re"], ["resume", "report", "remove", "retry", "replay", "rehearse"]),
        (["--v"], ["--version"]),
        (["graph", "--o"], ["--out"]),
        (["list", "--status", "c"], ["completed", "cancelled"]),
        (["list", "--status=f"], ["--status=failed"]),
        (["list", "--status", "failed", "--sta"], ["--status"]),
        (["list", "--all", "--al"], []),
        (["classify", "1", "a", ""], ["retry", "fail"]),
        (["graph", "w.yaml", "--format", "s"], ["svg"]),
        (["no-such-command", ""], []),
        (["list", "too", "many", ""], []),
        (["--help", ""], []),
    ],
)
def test_words_of_ours_are_suggested(words: list[str], expected: list[str], folder: Path) -> None:
    assert suggested(*words) == expected


def test_runs_are_suggested_newest_first_with_workflow_and_status(folder: Path) -> None:
    ran("name: good\nsteps: [{step: a, shell: echo}]")
    ran("name: bad\nsteps: [{step: a, shell: exit 1}]")

    for line in ("usage", "cancel --now", "fork --from a"):
        assert suggest(line.split(), "", os.environ) == [
            ("2", "bad, failed"),
            ("1", "good, completed"),
            ("latest", "run 2: bad, failed"),
        ]


def test_runs_that_other_runs_called_are_not_suggested(folder: Path) -> None:
    Path("child.yaml").write_text("steps: [{step: a, shell: echo}]")
    ran("name: parent\nsteps: [{step: call, workflow: child.yaml}]")

    assert suggested("usage", "") == ["1", "latest"]


def test_steps_are_those_of_the_run_that_is_typed_or_of_the_newest(folder: Path) -> None:
    ran(SWEEP, "--wait", "1m")
    ran("name: w\nsteps: [{step: build, shell: echo}, {step: test, shell: echo}]")

    assert suggested("logs", "1", "") == ["mesh_1", "mesh_2", "all", "ask"]
    assert suggested("logs", "latest", "") == ["build", "test"]
    assert suggested("logs", "") == suggested("show", "") == ["2", "1", "latest", "build", "test"]
    assert suggested("retry", "--from", "b") == ["build"]
    assert suggested("fork", "1", "--from", "mesh") == ["mesh_1", "mesh_2"]
    assert suggested("logs", "77", "") == []


def test_only_maps_have_items_and_only_approvals_can_be_approved(folder: Path) -> None:
    ran(SWEEP, "--wait", "1m")

    assert (suggested("items", "1", ""), suggested("approve", "1", "")) == (["all"], ["ask"])


def test_steps_of_a_file_are_suggested_also_while_it_is_being_written(folder: Path) -> None:
    text = """\
steps:
  # step: not_this_one
  - step: first
    shell: make
  - {step: "second", needs: [{step: first, on: always}], shell: "echo step: third"}
  - {"step": fourth, shell: {
"""
    Path("w.yaml").write_text(text)

    assert suggested("step", "w.yaml", "") == ["first", "second", "fourth"]
    assert suggested("step", "missing.yaml", "") == []


def test_workflows_and_steps_of_a_python_file_are_suggested(folder: Path) -> None:
    text = """\
import mulligan
from mulligan import flow, step

@step(
    retry=3,
)
def fetch(url): ...

@mulligan.step
async def load(rows): ...

def helper(): ...

@flow
def nightly(url): ...

@flow(timeout="1h")
def weekly(): ...

other = mulligan.Workflow("other")
"""
    Path("jobs.py").write_text(text)

    assert suggested("run", "jobs.py:") == ["jobs.py:nightly", "jobs.py:weekly", "jobs.py:other"]
    assert suggested("graph", "jobs.py:w") == ["jobs.py:weekly"]
    assert suggested("run", "missing.py:") == []
    assert suggested("step", "jobs.py:nightly", "") == suggested("step", "jobs.py", "") == ["fetch", "load"]


def test_files_that_may_hold_a_workflow_are_suggested_with_those_one_folder_below(folder: Path) -> None:
    for name in (
        "nightly.yaml",
        "notes.txt",
        "jobs/a.yml",
        "jobs/b.kdl",
        "jobs/deep/c.yaml",
        ".hidden/d.yaml",
        "e f.yaml",
    ):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()

    assert suggested("run", "") == ["jobs/a.yml", "jobs/b.kdl", "nightly.yaml"]
    assert suggested("validate", "nightly.yaml", "jobs/d") == ["jobs/deep/c.yaml"]
    assert suggested("run", f"{folder}/n") == [f"{folder}/nightly.yaml"]
    assert suggested("run", "missing/") == []


def test_names_that_the_store_knows_are_suggested(folder: Path) -> None:
    ran("name: w\nbreakers: {api: {failures: 1}}\nsteps: [{step: a, shell: exit 1, breaker: api}]")

    assert (suggested("stats", "--workflow", ""), suggested("breakers", "--reset", "")) == (["w"], ["api"])


def test_the_home_that_is_typed_is_the_one_that_is_looked_into(folder: Path) -> None:
    ran("name: w\nsteps: [{step: a, shell: echo}]", "--home", "elsewhere")

    assert suggested("usage", "--home", "elsewhere", "") == ["1", "latest"]
    assert suggested("usage", "--home=elsewhere", "") == ["1", "latest"]
    assert suggested("usage", "") == []


def test_runs_on_a_server_are_suggested(folder: Path, monkeypatch: pytest.MonkeyPatch, store_schema_url: str) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    ran("name: w\nsteps: [{step: a, shell: echo}]")

    assert (suggested("usage", ""), suggested("logs", "1", "")) == (["1", "latest"], ["a"])


def test_nothing_is_made_where_there_is_nothing(folder: Path) -> None:
    for line in ("mulligan show ", "mulligan logs 1 ", "mulligan run ", "mulligan step x.yaml "):
        assert asked("bash", line) == (0, "")

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MULLIGAN_STORE", "postgresql://nobody@127.0.0.1:1/nothing"),
        ("MULLIGAN_STORE", "mysql://what"),
        ("MULLIGAN_HOME", "broken"),
        ("MULLIGAN_HOME", "\0"),
        ("COMP_CWORD", "many"),
        ("COMP_WORDS", "mulligan show 'open"),
    ],
)
def test_whatever_is_wrong_nothing_is_said(name: str, value: str, folder: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken/mulligan.db").write_text("no database")

    assert asked("bash", "mulligan show ", **{name: value}) == (0, "")


def test_words_that_a_shell_would_read_as_more_than_a_word_are_not_suggested(folder: Path) -> None:
    ran("name: w\nsteps: [{step: a, shell: echo}]")
    forged = json.dumps({"steps": [{"name": name} for name in ("$(reboot)", "a b", "--now", "\x1b[2J", "ok")]})
    db = apsw.Connection(".mulligan/mulligan.db")
    db.execute("UPDATE workflows SET body = ?", (forged.encode(),))
    db.execute("UPDATE runs SET workflow = ?", ("'; touch harm; '\x1b[2J",))
    db.close()

    assert suggested("logs", "1", "") == ["ok"]
    assert asked("zsh", "mulligan usage ")[1] == (
        "local -a completions; completions=('1:touch harm 2J, completed' 'latest:run 1 touch harm 2J, completed'); "
        "_describe -V completions completions\n"
    )
    assert asked("fish", "mulligan usage ", _TYPER_COMPLETE_FISH_ACTION="get-args")[1].splitlines() == [
        "1\t'; touch harm; ' [2J, completed",
        "latest\trun 1: '; touch harm; ' [2J, completed",
    ]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("bash", "approve\n"),
        (
            "zsh",
            "local -a completions; completions=('approve:Answer an approval that a run waits for.'); "
            "_describe -V completions completions\n",
        ),
        ("fish", "approve\tAnswer an approval that a run waits for.\n"),
        ("powershell", "approve:::Answer an approval that a run waits for.\n"),
    ],
)
def test_each_shell_is_told_in_its_own_way(shell: str, expected: str, folder: Path) -> None:
    assert asked(shell, "mulligan app") == (0, expected)


def test_where_nothing_is_suggested_a_shell_offers_files(folder: Path) -> None:
    line = "mulligan schema --out "

    assert asked("bash", line) == (0, "")
    assert asked("zsh", line) == (0, "_files\n")
    assert asked("fish", line, _TYPER_COMPLETE_FISH_ACTION="is-args") == (1, "")
    assert asked("fish", "mulligan app", _TYPER_COMPLETE_FISH_ACTION="is-args") == (0, "")


def test_bash_completes_with_the_script_that_is_shown_and_keeps_the_order(folder: Path) -> None:
    ran("name: w\nsteps: [{step: a, shell: echo}]")
    script = SCRIPTS["bash"]
    (folder / "mulligan").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mulligan "$@"\n')
    (folder / "mulligan").chmod(0o755)
    asking = "\n".join(
        f'COMP_WORDS=({words}) COMP_CWORD={number}; _mulligan_completion mulligan; echo "${{COMPREPLY[*]}}"'
        for words, number in [
            ("mulligan logs ''", 2),
            ("mulligan list --status = fa", 4),
            ("mulligan list --status =", 3),
        ]
    )
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(SRC)}

    done = subprocess.run(
        ["bash", "-c", f"{script}\n{asking}"], env=environ, capture_output=True, encoding="utf-8", check=True
    )

    assert "complete -o nosort " in script
    expected = ["1 latest a", "failed", "running paused completed failed cancelled open ended"]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # Bash breaks words at '='.
        (["list", "--status", "=", "fa"], ["failed"]),
        (["list", "--status", "="], ["running", "paused", "completed", "failed", "cancelled", "open", "ended"]),
        (["list", "--status", "=", "failed", "--al"], ["--all"]),
        (["classify", "--reason", "=", "a", "1", "b", ""], ["retry", "fail"]),
        # The values of inputs are not known.
        (["classify", "1", "b", "-i", "x", "=", ""], []),
        (["run", "-i", "x", "="], []),
        # And at ':'.
        (["run", "jobs.py", ":", "ni"], ["nightly"]),
        (["run", "jobs.py", ":"], ["nightly", "weekly"]),
    ],
)
def test_what_bash_breaks_at_a_sign_is_one_word(words: list[str], expected: list[str], folder: Path) -> None:
    Path("jobs.py").write_text("@flow\ndef nightly(): ...\n@flow\ndef weekly(): ...\n")
    environ = {
        "_MULLIGAN_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["mulligan", *words]),
        "COMP_CWORD": str(len(words)),
    }
    answers: list[str] = []

    assert answer(environ, answers.append) == 0
    assert answers[0].split() == [word for word in expected if word]


def test_the_script_of_fish_keeps_the_order() -> None:
    assert " --keep-order " in SCRIPTS["fish"]


def completed(shell: str, words: str, count: int) -> str:
    """What a process prints when the shell asks it."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "_MULLIGAN_COMPLETE": f"complete_{shell}"}
    environment |= {"COMP_WORDS": words, "COMP_CWORD": str(count), "_TYPER_COMPLETE_ARGS": words}
    command = [sys.executable, "-m", "mulligan"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300).stdout


def test_the_shell_completes_the_options_of_a_command():
    assert completed("bash", "mulligan run --p", 2).split() == ["--parallel"]


def test_the_shell_completes_commands_also_where_the_words_so_far_are_in_order():
    assert set(completed("bash", "mulligan re", 1).split()) >= {"resume", "retry"}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_completion_of_each_shell_can_be_shown(shell: str):
    said = mulligan("--show-completion", shell)

    assert (said.code, said.out, said.err) == (0, SCRIPTS[shell] + "\n", "")


def test_the_shell_that_started_the_program_is_found(tmp_path: Path):
    # A process is called like its file.
    (tmp_path / "fish").symlink_to("/bin/bash")
    environment = {**os.environ, "PYTHONPATH": str(SRC), "SHELL": "/bin/other"}
    line = f"'{sys.executable}' -m mulligan --show-completion; true"

    done = subprocess.run(
        [tmp_path / "fish", "-c", line], env=environment, capture_output=True, text=True, timeout=300, check=True
    )

    assert (done.stdout, done.stderr) == (SCRIPTS["fish"] + "\n", "")


def test_a_shell_without_completion_is_refused():
    said = mulligan("--install-completion", "csh")

    assert (said.code, said.out, said.err) == (
        2,
        "",
        "error[usage]: there is no completion for 'csh'\n"
        "  name one of bash, zsh, fish, powershell, pwsh: mulligan --install-completion bash\n",
    )


INSTALLED = {
    "bash": {
        ".bash_completions/mulligan.sh": SCRIPTS["bash"],
        ".bashrc": "source '{home}/.bash_completions/mulligan.sh'",
    },
    "zsh": {
        ".zfunc/_mulligan": SCRIPTS["zsh"],
        ".zshrc": "fpath+=~/.zfunc; autoload -Uz compinit; compinit\n\nzstyle ':completion:*' menu select",
    },
    "fish": {".config/fish/completions/mulligan.fish": SCRIPTS["fish"]},
}


@pytest.mark.parametrize("shell", INSTALLED)
def test_completion_is_installed_once(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    first, second = mulligan("--install-completion", shell), mulligan("--install-completion", shell)

    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path)): path.read_text().strip("\n") for path in paths} == {
        name: text.replace("{home}", str(tmp_path)) for name, text in INSTALLED[shell].items()
    }
    installed = tmp_path / next(iter(INSTALLED[shell]))
    said = f"{shell} completion installed in {installed}\nCompletion will take effect once you restart the terminal\n"
    assert first == second == (0, said, "")


def test_installing_keeps_what_the_user_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_bytes(b"alias caf\xe9=ls")

    mulligan("--install-completion", "bash")

    assert (tmp_path / ".bashrc").read_bytes().startswith(b"alias caf\xe9=ls\nsource '")


@pytest.mark.parametrize(("script", "code"), [("echo profile.ps1", 0), ("exit 1", 2)])
def test_powershell_is_asked_for_its_profile(
    script: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pwsh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "pwsh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    assert mulligan("--install-completion", "pwsh").code == code
    assert Path("profile.ps1").is_file() == (code == 0)


@pytest.mark.parametrize(
    ("asked", "code", "out"), [("source_bash", 0, SCRIPTS["bash"] + "\n"), ("complete_csh", 1, "")]
)
def test_other_questions_of_a_shell(asked: str, code: int, out: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_MULLIGAN_COMPLETE", asked)

    assert mulligan() == (code, out, "")


def test_an_empty_question_is_none(monkeypatch: pytest.MonkeyPatch):
    # PowerShell's script leaves it behind.
    monkeypatch.setenv("_MULLIGAN_COMPLETE", "")

    assert mulligan("--version").code == 0


def test_completion_loads_neither_the_parser_nor_the_engine_nor_the_language(folder: Path) -> None:
    ran("name: w\nsteps: [{step: a, shell: echo}]")
    program = (
        "import sys\nfrom mulligan.cli.words.dispatch import exit_code\nexit_code([])\n"
        "print([name for name in sys.modules if name in ('inspect', 'yaml', 'rich', 'mulligan.engine',"
        " 'mulligan.worker', 'mulligan.language', 'mulligan.service.service', 'mulligan.store.sqlite.sqlite')],"
        " file=sys.stderr)"
    )
    environ = {
        **os.environ,
        "PYTHONPATH": str(SRC),
        "_MULLIGAN_COMPLETE": "complete_bash",
        "COMP_WORDS": "mulligan\nlogs\n1\n",
        "COMP_CWORD": "3",
    }

    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, encoding="utf-8", check=True
    )

    assert (done.stdout, done.stderr) == ("a\n", "[]\n")
