"""Commands that need no shell: started without one only where nobody can tell the difference."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.worker.programs import Programs, find_program

PLAIN = {"PATH": "/usr/bin:/bin", "HOME": "/", "SHLVL": "3", "PWD": "/tmp"}


def direct(text: str, inherited: dict[str, str] = PLAIN, own: dict[str, str] | None = None) -> list[str] | None:
    found = Programs(inherited, is_direct=True).direct_command(text, own or {}, "/")
    return None if found is None else found[1]


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("true", ["true"]),
        (" sleep  0.1\n", ["sleep", "0.1"]),
        ("env A=1 -u B", ["env", "A=1", "-u", "B"]),
        ("ls -l /usr/bin --color=never", ["ls", "-l", "/usr/bin", "--color=never"]),
    ],
)
def test_a_command_of_plain_words_needs_no_shell(text: str, argv: list[str]) -> None:
    assert direct(text) == argv


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "# ls", "ls #x", "ls; ls", "ls && ls", "ls | cat", "ls &", "ls > x", "ls\nls", "! ls", "(ls)"),
        *("ls $HOME", "ls *", "ls ?", "ls [a]", "ls ~", "ls {a,b}", "ls 'a'", 'ls "a"', "ls \\a", "ls `a`", "ls a~b"),
        *("A=1 ls", "A=1", "./ls", "/bin/ls", "no-such-program", "-ls"),
        # what bash does itself, and what it does otherwise than the program of that name
        *("echo a", "test a", "kill 1", "printf a", "pwd", "cd /", "exit", "exit 3", "true --help", "false x"),
        *("if true", "time ls", "exec ls", "command ls", "source x", ". x", ": x", "[ a ]"),
    ],
)
def test_everything_else_needs_one(text: str) -> None:
    assert direct(text) is None


@pytest.mark.parametrize(
    "variable", ["BASH_ENV", "SHELLOPTS", "BASHOPTS", "POSIXLY_CORRECT", "BASH_FUNC_ls%%", "PATH", "SHLVL", "_"]
)
def test_whoever_changes_how_bash_starts_gets_bash(variable: str) -> None:
    assert direct("ls", own={variable: "x"}) is None


@pytest.mark.parametrize(
    "changed",
    [
        *({"BASH_ENV": "x"}, {"SHELLOPTS": "xtrace"}, {"BASH_FUNC_ls%%": "() { :; }"}, {"PATH": ".:/bin"}),
        *({"PATH": "/bin/"}, {"PATH": ""}, {"SHLVL": "many"}, {"OLDPWD": "/no/such/folder"}),
    ],
)
def test_a_worker_whose_own_environment_changes_it_always_uses_bash(changed: dict[str, str]) -> None:
    assert direct("ls", {**PLAIN, **changed}) is None


def test_a_name_with_a_slash_is_itself_if_it_is_there() -> None:
    assert (find_program("/bin/sh", ""), find_program("/no/such", "/bin")) == ("/bin/sh", None)


def test_a_folder_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "ls").mkdir()

    assert find_program("ls", f"{tmp_path}:/bin") == "/bin/ls"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Work, Work]]:
    """Two workers: one that starts plain commands itself, one that always asks bash."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pair = Work(tmp_path / "a"), Work(tmp_path / "b", is_direct=False)
    yield pair
    for work in pair:
        work.close()


@pytest.mark.parametrize("text", ["env", "cat /proc/self/cmdline", "ls -l /proc/self/fd/0", "sleep wrong", "false"])
def test_a_program_cannot_tell_who_started_it(both: tuple[Work, Work], text: str) -> None:
    found = []
    for work in both:
        work.folder = both[0].folder
        report = work.run_shell(text, env={"A": "1"}, place="same")
        # The PATH ends with the folder of the worker if our own program is not on it.
        printed = (report.output or "").replace(f":{work.home}/workers/{work.name}", "")
        lines = [line for line in printed.split("\n") if not line.startswith("MULLIGAN_")]
        found.append((report.outcome, sorted(_without_times(line) for line in lines)))

    assert found[0] == found[1]


def _without_times(line: str) -> str:
    """What `ls -l` says of a link: who and where, not when."""
    words = line.split()
    return " ".join(words[:4] + words[8:]) if line.startswith("l") else line


def test_a_script_that_does_not_say_what_it_is_for_is_read_by_bash(tmp_path: Path) -> None:
    script = tmp_path / "nameless-script"
    script.write_text("echo read by bash ${BASH_VERSION:+yes}")
    script.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{tmp_path}:{before}"
    try:
        work = Work(tmp_path)
    finally:
        os.environ["PATH"] = before

    outputs = [work.run_shell("nameless-script").output for _ in range(2)]

    assert outputs == ["read by bash yes"] * 2
    work.close()
