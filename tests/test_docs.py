"""The pages are true: links lead somewhere, workflows load, Python runs, and tables say what the code does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support import played
from tests.support.forked_cli import forked_cli
from tests.support.played import play

from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.commands import COMMANDS
from mulligan.cli.words.dispatch import call_for
from mulligan.core.model.failure import CODES
from mulligan.errors import LanguageError
from mulligan.formats import load
from mulligan.formats.recognition import recognize
from mulligan.language.expressions import check, evaluate
from mulligan.language.keys.workflow_keys import STEP, WORKFLOW
from mulligan.language.reference import records, reference
from mulligan.language.shell.shell import ShellRefused, rewrite
from mulligan.language.text.document import parse
from mulligan.language.text.nodes import Refusal, Source

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(
            ROOT / "examples" / name
            for name in ("README.md", "plugin/README.md", "programs/README.md", "sales/README.md")
        ),
        *DOCS.glob("**/*.md"),
    ]
)
PLAYED_PAGES = [
    DOCS / f"{name}.md"
    for name in (
        "agents/guard-rails",
        "agents/providers",
        "agents/tools",
        "reference/actions",
        "how-to/agents",
        "agents/triage",
        "concepts/breakers",
        "other-systems/coming-from",
        "other-systems/from-dbos",
        "other-systems/from-prefect",
        "other-systems/from-temporal",
        "concepts/data",
        "other-systems/alphred",
        "other-systems/a-day-with-alphred",
        "other-systems/prodigy",
        "other-systems/noetl",
        "other-systems/a-day-with-noetl",
        "other-systems/torc",
        "concepts/programs",
        "concepts/handlers",
        "concepts/ladder",
        "how-to/coverage",
        "how-to/deploy-a-project",
        "how-to/events",
        "how-to/map",
        "how-to/python-types",
        "operate/notices",
        "operate/operations",
        "operate/schedules",
        "operate/webhooks",
        "how-to/python-steps",
        "how-to/reports",
        "how-to/requirements",
        "concepts/routes",
        "how-to/secrets",
        "operate/security",
        "how-to/suggest",
        "how-to/sweeps",
        "how-to/testing",
        "how-to/triage",
        "how-to/up-to-date",
        "how-to/whatif",
        "how-to/workspaces",
        "nl2sql",
        "start/python",
        "start/quick-start",
        "start/why",
        "start/tutorials/agent-loop",
        "start/tutorials/pipeline",
        "start/tutorials/sweep",
        "../examples/programs/README",
    )
]
# Long ones, and those whose commands others show too.
PAGES_OF_THE_NIGHT = {
    DOCS / f"{name}.md"
    for name in (
        "nl2sql",
        "how-to/testing",
        "start/python",
        "start/tutorials/agent-loop",
        "start/tutorials/pipeline",
        "start/tutorials/sweep",
        "start/why",
        "how-to/whatif",
        "how-to/python-steps",
        "how-to/python-types",
        "how-to/requirements",
        "how-to/up-to-date",
        "how-to/workspaces",
        "how-to/agents",
        "agents/triage",
        "other-systems/coming-from",
        "other-systems/from-dbos",
        "other-systems/from-prefect",
        "other-systems/from-temporal",
        "other-systems/a-day-with-alphred",
        "other-systems/noetl",
        "other-systems/a-day-with-noetl",
        "other-systems/torc",
        "other-systems/prodigy",
        "../examples/programs/README",
        # What they show is shown by day on the pages of the concepts.
        "agents/guard-rails",
        "agents/providers",
        "agents/tools",
        "how-to/coverage",
        "how-to/deploy-a-project",
        "how-to/map",
        "how-to/reports",
        "how-to/secrets",
        "how-to/suggest",
        "how-to/sweeps",
        "how-to/triage",
        "operate/notices",
        "operate/operations",
        "operate/schedules",
        "operate/security",
        "other-systems/alphred",
    )
}
PYTHON_PAGES = [DOCS / "reference/python.md", DOCS / "how-to/python-api.md", DOCS / "how-to/testing.md"]

_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
# A call of ours, up to a comment, another command, or where its output goes.
_CALL = re.compile(r"\s*(?:\.venv/bin/)?mulligan (.+?)(?=\s*(?:#|&|\||;|\d?>|$))")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, the words after it, its text and its line in the page."""

    language: str
    words: str
    text: str
    page: Path
    line: int


def named(value: Path | Block) -> str:
    page = value.page if isinstance(value, Block) else value
    name = page.relative_to(ROOT).as_posix()
    return f"{name}:{value.line}" if isinstance(value, Block) else name


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2].strip(), found[3], page, text.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(text)
        if found[1] == language
    ]


def prose(page: Path) -> str:
    """A page without its code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(text: str) -> list[str]:
    """The links of a text that lead into this repository; what is in backticks is no link."""
    found = _LINK.findall(_CODE_SPAN.sub("`…`", text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """What a `#…` may name: the headings as they are written in addresses."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def dead_links(page: Path, text: str) -> Iterator[str]:
    """The links of `text`, which stands at `page`, that lead nowhere."""
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(prose(target))):
            yield link


def is_workflow(block: Block) -> bool:
    """Whether it is a file of somebody's, or starts with a key that stands at the top of ours; others are parts."""
    return block.text.partition(":")[0] in WORKFLOW.keys or is_foreign(block)


def is_foreign(block: Block) -> bool:
    try:
        return recognize(parse(Source(block.text, named(block)))) != ""
    except Refusal:
        return False


def workflow_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page, "yaml") if is_workflow(block)]


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    assert [(named(page), link) for page in PAGES for link in dead_links(page, prose(page))] == []


@pytest.mark.parametrize(
    "link",
    ["nowhere.md", "language.md#nothing-of-that-name", "#nothing-of-that-name", "../docs/nowhere/"],
)
def test_a_link_that_leads_nowhere_would_be_found(link: str) -> None:
    page = DOCS / "reference/expressions.md"

    assert list(dead_links(page, f"see [this]({link}), [that](language.md#failure) and `[code](x.md)`")) == [link]


def test_every_workflow_on_a_page_loads() -> None:
    refused = []
    for block in workflow_blocks():
        folder = DOCS if block.page.is_relative_to(DOCS) else block.page.parent
        try:
            load(folder / "page.yaml", text=block.text)
        except LanguageError as error:
            refused.append((named(block), str(error)))

    assert refused == []


def test_a_workflow_on_a_page_that_is_wrong_would_be_found() -> None:
    with pytest.raises(LanguageError):
        load(DOCS / "page.yaml", text="steps: [{step: a, run: make}]")


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=named)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = blocks(page, "python")
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(block.text for block in found), encoding="utf-8")
    for block in found:
        if block.words:
            # What the page says to save can be imported, and is forgotten afterwards.
            (tmp_path / block.words).write_text(block.text, encoding="utf-8")
            monkeypatch.setitem(sys.modules, Path(block.words).stem, runpy)
            del sys.modules[Path(block.words).stem]
    monkeypatch.syspath_prepend(tmp_path)

    with contextlib.chdir(tmp_path):
        runpy.run_path(str(script), run_name="page")

    assert found


def test_the_page_on_running_shows_every_key_of_the_json(tmp_path: Path) -> None:
    page = DOCS / "concepts/running.md"
    [text] = [block.text for block in blocks(page, "yaml") if block.text.startswith("name: tiny")]
    (tmp_path / "tiny.yaml").write_text(text, encoding="utf-8")

    printed = json.loads(mulligan(tmp_path, "run", "tiny.yaml", "--json", exit_code=1).stdout)

    shown = json.loads(blocks(page, "json")[0].text)
    assert list(shown) == list(printed)
    assert list(shown["steps"]["check"]) == list(printed["steps"]["check"])
    assert list(shown["steps"]["check"]["failure"]) == list(printed["steps"]["check"]["failure"])


def mulligan(folder: Path, *words: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    """A command as it is typed in a folder."""
    command = [sys.executable, "-m", "mulligan", *words]
    clean = {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8", "MULLIGAN_HOME": "", "MULLIGAN_STORE": ""}
    environ = {**os.environ, **clean}
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, encoding="utf-8", check=False)
    assert ended.returncode == exit_code, ended.stderr
    return ended


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """A `mulligan` for the two hundred calls of the pages. The page on running is typed with a whole one."""
    with forked_cli(played.environment()) as text:
        yield text


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=named(page), marks=pytest.mark.nightly if page in PAGES_OF_THE_NIGHT else ())
        for page in PLAYED_PAGES
    ],
)
def test_what_a_page_shows_is_what_is_printed(page: Path, tmp_path: Path, program: str) -> None:
    folder = tmp_path / "nightly"
    folder.mkdir()

    shown = list(play(page, folder, program))

    assert [played.steady(one.text) for one in shown] == [played.steady(one.printed) for one in shown], (
        f"write what is printed today with: PYTHONPATH=src python tests/support/played.py {named(page)}"
    )


def test_right_below_a_block_stands_what_its_commands_print_and_nothing_that_nobody_printed() -> None:
    stray = [
        (named(page), below[3])
        for page in PLAYED_PAGES
        for above, below in pairwise(_FENCE.finditer(page.read_text(encoding="utf-8")))
        if below[1] == "text" and below.start() == above.end() + 1 and above[1] != "console"
    ]

    assert stray == []


def test_the_mistakes_of_the_quick_start_are_refused_as_it_shows() -> None:
    page = DOCS / "start/quick-start.md"
    good = blocks(page, "yaml")[0].text
    wrong = good.replace("needs: [fetch]", "needs: [fecth]").replace("on_failure: echo", "on_error: echo")

    with pytest.raises(LanguageError) as caught:
        load("nightly.yaml", text=wrong)

    assert f"{caught.value}\n" in [block.text for block in blocks(page, "text")]


def test_the_readme_begins_with_the_sixty_seconds_and_then_shows_what_coverage_prints(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Know before the night\n")[2].partition("\n## ")[0]
    page, folder = tmp_path / "page.md", tmp_path / "nightly"
    page.write_text(section, encoding="utf-8")
    folder.mkdir()

    (shown,) = play(page, folder)

    assert shown.text == shown.printed
    begins = text.index("## Sixty seconds\n")
    assert begins < text.index(section)
    assert text[:begins].count("\n") < 15


def expressions() -> list[tuple[str, str]]:
    lines = [line for block in blocks(DOCS / "reference/expressions.md", "cel") for line in block.text.splitlines()]
    pairs = (line.split(" => ") for line in lines)
    return [(source.strip(), value) for source, value in pairs]


@pytest.mark.parametrize(("source", "value"), expressions())
def test_an_expression_gives_what_stands_beside_it(source: str, value: str) -> None:
    names = json.loads(blocks(DOCS / "reference/expressions.md", "json")[0].text)

    assert evaluate(check(source), names) == json.loads(value)


def shell_lines() -> list[tuple[str, str]]:
    return [
        (block.words, line)
        for block in blocks(DOCS / "reference/shell-values.md", "sh")
        for line in block.text.splitlines()
    ]


@pytest.mark.parametrize(("verdict", "text"), shell_lines())
def test_a_shell_line_is_taken_or_refused_as_the_page_says(verdict: str, text: str) -> None:
    try:
        rewrite(text)
        found = "fine"
    except ShellRefused:
        found = "refused"

    assert found == verdict


def test_the_reference_is_what_the_keys_say() -> None:
    page = (DOCS / "reference/reference.md").read_text(encoding="utf-8")

    assert page == reference(), "write it anew with: python -m mulligan.language.reference"


def test_the_reference_has_a_section_for_everything_that_a_file_can_hold() -> None:
    found = {record.name for record in records(WORKFLOW)}

    assert {"workflow", "step", "command", "handler", "edge", "need", "rule", "policy", "map", "end"} <= found


def test_the_page_on_the_language_has_every_key_of_a_file_and_of_a_step() -> None:
    text = (DOCS / "reference/language.md").read_text(encoding="utf-8")

    missing = [word for word in (*WORKFLOW.keys, *STEP.keys) if not re.search(rf"\b{word}\b", text)]

    assert missing == []


def test_the_page_for_the_troubled_has_every_failure_code() -> None:
    said = set(
        re.findall(r"\b[A-Z][A-Z0-9]*_?[A-Z0-9_]*\b", (DOCS / "operate/troubleshooting.md").read_text(encoding="utf-8"))
    )

    assert CODES - said == set()


def test_every_page_is_named_in_an_index() -> None:
    indexes = (DOCS / "README.md", DOCS / "other-systems/README.md", ROOT / "README.md")

    reached = {(index.parent / link).resolve() for index in indexes for link in links(index.read_text("utf-8"))}

    assert {named(page) for page in DOCS.glob("**/*.md") if page not in {*reached, DOCS / "README.md"}} == set()


def test_every_block_of_a_page_is_closed() -> None:
    # What is never closed is no block to the tests above, and swallows the rest of the page.
    assert [named(page) for page in PAGES if len(re.findall(r"^```", page.read_text("utf-8"), re.MULTILINE)) % 2] == []


def typed() -> list[tuple[str, str]]:
    """The command lines of all pages that call Mulligan, each with its page."""
    lines = (
        (named(page), line) for page in PAGES for block in blocks(page, "console") for line in block.text.splitlines()
    )
    calls = ((name, _CALL.match(line)) for name, line in lines)
    return list(dict.fromkeys((name, call[1].strip()) for name, call in calls if call))


def test_every_command_on_a_page_is_one_that_there_is() -> None:
    lines = typed()

    assert lines
    assert [(page, line) for page, line in lines if not is_taken(*shlex.split(line))] == []


def is_taken(command: str, *words: str) -> bool:
    """Whether there is such a command and it takes these words: it is not called."""
    if command in ("--install-completion", "--show-completion"):
        return True
    if command not in COMMANDS:
        return False
    try:
        call_for([command, *words])
    except UsageRefused:
        return False
    return True


def test_a_command_that_there_is_not_would_be_found() -> None:
    assert not is_taken("nightly")
    assert not is_taken("run", "nightly.yaml", "--no-such-option")
    assert not is_taken("fork")
    assert not is_taken("list", "one", "too", "many")


def test_the_page_on_the_command_line_has_every_command() -> None:
    text = (DOCS / "reference/command-line.md").read_text(encoding="utf-8")

    assert [name for name in COMMANDS if f"| `{name}" not in text] == []


CHEAT_SHEET = DOCS / "start/cheat-sheet.md"


def test_all_that_the_cheat_sheet_shows_is_whole_workflows() -> None:
    # So that each of them is loaded, above.
    assert [named(block) for block in blocks(CHEAT_SHEET, "yaml") if not is_workflow(block)] == []


def test_the_cheat_sheet_has_every_command_and_fits_on_a_page() -> None:
    text = CHEAT_SHEET.read_text(encoding="utf-8")

    assert [name for name in COMMANDS if f"\nmulligan {name}" not in text] == []
    assert len(text.splitlines()) <= 150
