"""`--home`: commands that are proposed name it, and one that cannot be used is told as that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, ran_before, workflow

from mulligan.cli.words.options import service_at, with_home
from mulligan.errors import HomeUnusable
from mulligan.service.driving.driver import machine
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.home import Home
from mulligan.service.host.doctor import examine_machine
from mulligan.service.service import Service

pytestmark = pytest.mark.usefixtures("folder")

FAILED = "name: failed\nsteps:\n  - {step: a, shell: 'exit 1'}\n"
PARKED = "name: parked\nsteps:\n  - {step: a, shell: 'exit 1', triage: true}\n"
HOME = "my runs"


def proposed(said: Said) -> list[str]:
    """The commands in what was said."""
    return re.findall(r"mulligan [a-z]+\b[^;,)`\n#]*", said.out + said.err)


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", 1),  # a failed run
        ("pause", 1),
        ("resume", 1),
        ("show", 1),
        ("logs", 1, "b"),
        ("show", 9),
        ("retry", 2),  # one that waits for a person
        ("approve", 2, "a"),
        ("show", 2),
        ("explain", 2),
        ("pending",),
        ("list",),
        ("items", 1, "a"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_every_command_that_is_proposed_finds_the_same_runs(words: tuple[object, ...]) -> None:
    ran_before(FAILED, PARKED)
    Path(".mulligan").rename(HOME)

    found = proposed(mulligan(*words, "--home", HOME))

    assert [command for command in found if "--home 'my runs'" not in command] == []


def test_a_run_proposes_commands_that_find_it() -> None:
    found = proposed(mulligan("run", workflow(FAILED), "--home", HOME))

    assert [command.strip() for command in found] == [
        "mulligan logs 1 a --home 'my runs'",
        "mulligan retry 1 --home 'my runs'",
        "mulligan explain 1 --home 'my runs'",
    ]


def test_a_home_that_was_not_given_on_the_command_line_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_HOME", HOME)
    mulligan("run", workflow(FAILED))

    assert proposed(mulligan("cancel", 1)) == ["mulligan retry 1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("do: mulligan retry 1", "do: mulligan retry 1 --home h"),
        ("if so: mulligan resume 1; else: mulligan cancel 1 --now", None),
        ("see `mulligan breakers`", "see `mulligan breakers --home h`"),
        ("mulligan retry 1 --home h", "mulligan retry 1 --home h"),
        ("what is wrong: mulligan validate 'a.yaml'", "what is wrong: mulligan validate 'a.yaml'"),
        ("log in: mulligan login http://h; or not", "log in: mulligan login http://h; or not"),
        ("mulligan is up", "mulligan is up"),
        ("nothing to type", "nothing to type"),
    ],
)
def test_commands_in_a_sentence_get_the_home(text: str, expected: str | None) -> None:
    both = "if so: mulligan resume 1 --home h; else: mulligan cancel 1 --now --home h"

    assert with_home(text, "h") == (expected or both)
    assert with_home(text, None) == text


@pytest.mark.parametrize(
    "words", [("list",), ("show", 1), ("retry", 1), ("pending",), ("gc",), ("stats",), ("breakers",), ("logs", 1, "a")]
)
@pytest.mark.parametrize("home", ["file", "file/below", "loop", "n" * 300])
def test_a_home_that_cannot_be_used_is_told_as_that_with_what_to_do(home: str, words: tuple[object, ...]) -> None:
    Path("file").write_text("no folder")
    Path("loop").symlink_to("loop")

    said = mulligan(*words, "--home", home)

    assert said.code == 1
    assert said.err.startswith("error[home.unusable]: ")
    assert "choose another folder with --home DIR or MULLIGAN_HOME" in said.err


@pytest.mark.parametrize("words", [("list",), ("run", "flow.yaml")])
def test_a_home_that_is_a_file_is_called_by_its_name_once(words: tuple[object, ...]) -> None:
    Path("file").write_text("no folder")
    Path("flow.yaml").write_text("name: w\nsteps: [{step: a, shell: 'true'}]\n")

    said = mulligan(*words, "--home", "file")

    first = said.err.splitlines()[0]
    assert first == f"error[home.unusable]: '{Path('file').absolute()}' cannot be the home: it is not a folder"


def test_whatever_in_a_home_may_not_be_read_is_told_with_the_home() -> None:
    secret = Path(HOME).absolute() / "runs" / "1" / "logs" / "a#1.out"

    with pytest.raises(HomeUnusable) as caught, service_at(HOME):
        raise PermissionError(13, "Permission denied", str(secret))

    home = Path(HOME).absolute()
    assert caught.value.message == f"permission denied: '{secret}' (the home is '{home}')"


def test_what_is_no_file_of_the_home_is_told_as_it_is() -> None:
    with pytest.raises(PermissionError), service_at(HOME):
        raise PermissionError(13, "Permission denied", "/elsewhere")


@pytest.mark.parametrize("words", [("list",), ("pending",), ("worker",), ("doctor",)])
def test_a_store_that_is_no_url_is_refused_and_nothing_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
):
    monkeypatch.setenv("MULLIGAN_STORE", "runs.db")

    said = mulligan(*words)

    assert said == (
        2,
        "",
        "error[input.invalid]: MULLIGAN_STORE is not a postgresql:// URL\n"
        "  it names a database on a server; to use a folder: --home DIR or MULLIGAN_HOME=DIR\n",
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (
            ("list", "--home", "postgresql://me:pw@db/runs"),
            {},
            "error[input.invalid]: the home is a URL, and not a folder or a server of Mulligan\n"
            "  set MULLIGAN_STORE to the URL of a database; --home names the folder for the files beside it\n",
        ),
        (
            ("worker",),
            {"MULLIGAN_HOME": "postgresql://me:pw@db/runs"},
            "error[input.invalid]: MULLIGAN_HOME is a URL, and not a folder\n"
            "  set MULLIGAN_STORE to this URL instead\n",
        ),
        (
            ("list",),
            {"MULLIGAN_HOME": "https://runs.example"},
            "error[input.invalid]: MULLIGAN_HOME is a URL, and not a folder\n"
            "  set MULLIGAN_SERVER to this URL instead\n",
        ),
    ],
)
def test_a_url_is_no_home_and_no_folder_of_that_name_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variables: dict[str, str], said: str
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert mulligan(*words) == (2, "", said)
    assert list(folder.iterdir()) == []


# Network file systems


def on_nfs(folder: Path) -> Home:
    return Home(folder / ".mulligan", file_system=lambda path: "nfs")


def test_no_database_is_made_on_a_network_file_system_and_the_hint_is_a_command(folder: Path):
    with pytest.raises(HomeUnusable) as refused:
        on_nfs(folder).open()

    assert "(nfs)" in refused.value.message and "mulligan postgres start" in refused.value.hint
    assert "MULLIGAN_ALLOW_NETWORK_FILES=1" in refused.value.hint
    assert not (folder / ".mulligan").exists()


def test_runs_that_are_on_a_network_file_system_are_shown_and_not_driven(folder: Path):
    mulligan("run", workflow(FAILED))

    with Service(on_nfs(folder)) as service:
        assert service.runs.status(1) == "failed"
        with pytest.raises(HomeUnusable), open_driver(service.reader, machine(1)):
            pass


def test_whoever_knows_better_may_use_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_ALLOW_NETWORK_FILES", "1")

    on_nfs(folder).open().close()


def test_a_home_may_be_anywhere_if_the_runs_are_on_a_server(folder: Path):
    home = Home(folder / ".mulligan", "postgresql://db/runs", file_system=lambda path: "nfs")

    home.refuse_network_files()


@pytest.mark.parametrize("is_used", [False, True])
def test_the_doctor_says_it_before_and_after_the_first_run(folder: Path, is_used: bool):
    if is_used:
        mulligan("run", workflow(FAILED))

    [store] = [check for check in examine_machine(on_nfs(folder)).checks if check.name == "store"]

    assert store.health == "problem" and "(nfs)" in store.found and "mulligan postgres start" in store.advice
