"""What a step of Prodigy's is called that has no name."""

from __future__ import annotations

import pytest

from mulligan.formats.prodigy.forms import prompt_title, script_title

SCRIPTS = {
    "npm run build": "npm_run_build",
    "cargo test --all": "cargo_test",
    "./scripts/deploy.sh production": "deploy_production",
    "cd web && npm test": "npm_test",
    "set -e\nmake -j4 all": "make",
    "git add -A && git commit": "git_add",
    "ls *.py | sort": "ls",
    "sort; uniq": "sort",
    'echo "done"': "echo",
    "one two three four": "one_two_three",
    "X=1 make": "shell",
    "[ -e done ]": "shell",
    "if true; then ls; fi": "shell",
    "${item.command}": "shell",
    "": "shell",
}


@pytest.mark.parametrize(("script", "title"), SCRIPTS.items())
def test_a_script_is_called_by_its_program_and_the_plain_words_behind_it(script: str, title: str) -> None:
    assert script_title(script) == title


@pytest.mark.parametrize(
    ("prompt", "title"), {"/review a.py": "review", "lint": "lint", "Mend the tests.": "claude"}.items()
)
def test_a_prompt_is_called_by_its_command(prompt: str, title: str) -> None:
    assert prompt_title(prompt) == title
