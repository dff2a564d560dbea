"""Checked workflows are kept between processes, and what is found is what would be read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from mulligan.cache_folder import VARIABLE
from mulligan.errors import LanguageError
from mulligan.formats import examine
from mulligan.formats import loading as anew
from mulligan.language.checked_files import FOLDER, CheckedFiles
from mulligan.language.loading import examine as read_anew
from mulligan.language.loading import load_text

EXAMPLES = sorted(Path("examples").rglob("*.yaml"))
TEXT = "name: nightly\nsteps:\n  - {step: build, shell: 'make ${inputs.target}', retry: 2}\ninputs: {target: string}\n"
# Nothing reads the second step's output, and it can never be reached by its edge: a warning.
WARNED = "name: w\nsteps:\n  - {step: a, shell: 'echo ${item}'}\n"
CALLER = "name: caller\nsteps:\n  - {step: call, workflow: {file: child.yaml}}\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / FOLDER


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(TEXT)
    return path


def kept(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


def replace_by_another(cache: Path, path: Path) -> None:
    """What is kept of a file is another workflow from here on: who gets that one has not read the file."""
    folder = CheckedFiles(str(cache))
    found = folder.find(str(path), path.read_bytes())
    assert found is not None
    other = load_text("name: from the cache\nsteps: [{step: a, shell: make}]\n")
    folder.keep(str(path), path.read_bytes(), included_in(cache, path), found._replace(workflow=other))


def included_in(cache: Path, path: Path) -> dict[str, str]:
    digests: dict[str, str] = {}
    anew.examine(path, digests=digests)
    del digests[str(path)]
    return digests


def test_a_file_that_was_checked_is_not_read_again(cache: Path, file: Path) -> None:
    examine(file)
    replace_by_another(cache, file)

    assert examine(file).workflow.name == "from the cache"


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_what_is_found_is_what_would_be_read(cache: Path, path: Path) -> None:
    try:
        first = examine(path)
    except LanguageError:
        assert kept(cache) == []
        return

    second = examine(path)

    assert second == first == anew.examine(path)
    # With the keys in the same order: dictionaries that are equal may differ in it.
    assert msgspec.json.encode(second.workflow) == msgspec.json.encode(first.workflow)


def test_its_warnings_are_kept_too(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "warned.yaml"
    path.write_text(WARNED)

    first, second = examine(path), examine(path)

    assert [one.code for one in first.warnings] == [one.code for one in second.warnings] != []
    assert second.warnings == first.warnings == read_anew(path).warnings
    assert len(kept(cache)) == 1


def test_a_file_that_has_changed_is_read(cache: Path, file: Path) -> None:
    examine(file)
    replace_by_another(cache, file)
    file.write_text(TEXT.replace("nightly", "daily"))

    assert examine(file).workflow.name == "daily"


def test_a_file_of_another_name_is_read_since_it_may_be_named_after_it(cache: Path, tmp_path: Path) -> None:
    names = []
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text("steps: [{step: a, shell: make}]\n")
        names.append(examine(tmp_path / name).workflow.name)

    assert names == ["one", "two"]


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_a_file_whose_included_file_has_changed_is_read(cache: Path, tmp_path: Path, change: str) -> None:
    caller, child = tmp_path / "caller.yaml", tmp_path / "child.yaml"
    caller.write_text(CALLER)
    child.write_text(TEXT.replace("inputs: {target: string}", "inputs: {target: {type: string, default: x}}"))
    first = examine(caller).workflow
    assert examine(caller).workflow == first
    replace_by_another(cache, caller)
    assert examine(caller).workflow.name == "from the cache"

    if change == "gone":
        child.unlink()
        with pytest.raises(LanguageError):
            examine(caller)
    else:
        child.write_text(child.read_text().replace("build", "make"))
        assert [step.name for step in examine(caller).workflow.children["child.yaml"].steps] == ["make"]


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"\0" * 200])
def test_what_is_damaged_is_dropped_and_read_again(cache: Path, file: Path, damage: bytes) -> None:
    first = examine(file)
    (one,) = kept(cache)
    one.write_bytes(damage)

    assert CheckedFiles(str(cache)).find(str(file), file.read_bytes()) is None
    assert kept(cache) == []
    assert examine(file) == first
    assert kept(cache) == [one]


def test_a_single_changed_byte_is_damage(cache: Path, file: Path) -> None:
    first = examine(file)
    (one,) = kept(cache)
    whole = one.read_bytes()

    for position in range(0, len(whole), 37):
        one.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert CheckedFiles(str(cache)).find(str(file), file.read_bytes()) is None
    assert examine(file) == first


def test_only_so_many_are_kept_and_those_that_were_used_last(tmp_path: Path, file: Path) -> None:
    few = CheckedFiles(str(tmp_path / "few"), files_max=3)
    result = anew.examine(file)
    for number in range(5):
        few.keep(str(number), b"", {}, result)
        for age, one in enumerate(sorted(kept(tmp_path / "few"), key=lambda one: -one.stat().st_mtime)):
            os.utime(one, (1_000 - age, 1_000 - age))

    assert [few.find(str(number), b"") is not None for number in range(5)] == [False, False, True, True, True]


def test_only_so_many_bytes_are_kept(tmp_path: Path, file: Path) -> None:
    result = anew.examine(file)
    small = CheckedFiles(str(tmp_path / "small"), bytes_max=4_000)
    tiny = CheckedFiles(str(tmp_path / "tiny"), bytes_max=100)
    for number in range(20):
        small.keep(str(number), b"", {}, result)
        tiny.keep(str(number), b"", {}, result)

    assert 0 < sum(one.stat().st_size for one in kept(tmp_path / "small")) <= 4_000
    assert kept(tmp_path / "tiny") == []


def test_many_may_keep_and_find_at_the_same_time(tmp_path: Path, file: Path) -> None:
    result = anew.examine(file)

    def use(number: int) -> Iterator[bool]:
        files = CheckedFiles(str(tmp_path / "busy"), files_max=2)
        for _ in range(20):
            files.keep(str(number % 4), b"", {}, result)
            found = files.find(str(number % 4), b"")
            yield found is None or found == result

    with ThreadPoolExecutor(8) as pool:
        assert all(all(one) for one in pool.map(lambda number: list(use(number)), range(8)))
    assert len(kept(tmp_path / "busy")) <= 3


def test_a_folder_in_which_others_may_write_is_not_used(cache: Path, file: Path) -> None:
    examine(file)
    replace_by_another(cache, file)
    cache.chmod(0o777)

    assert examine(file).workflow.name == "nightly"


def test_without_a_folder_nothing_is_kept(file: Path) -> None:
    nowhere = CheckedFiles("")

    nowhere.keep(str(file), file.read_bytes(), {}, anew.examine(file))

    assert nowhere.find(str(file), file.read_bytes()) is None


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "another system": ("job.yaml", "name: x\njobs:\n  - {name: a, command: echo}\n"),
        "an action that a package adds": ("plugin.yaml", "steps: [{step: a, noetl: {render: x}}]\n"),
        "the same in a handler": (
            "handler.yaml",
            "steps: [{step: a, shell: make, on_failure: {commands: [{noetl: {render: x}}]}}]\n",
        ),
        "a program": (
            "flow.py",
            "import mulligan\n\n\n@mulligan.flow\ndef nightly():\n    mulligan.shell('a', 'make')\n",
        ),
    }.values(),
)
def test_what_depends_on_more_than_files_is_not_kept(cache: Path, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    assert [step.name for step in examine(tmp_path / name).workflow.steps] == ["a"]

    assert kept(cache) == []


def test_a_refused_file_is_not_kept(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "refused.yaml").write_text("steps: [{step: a, shel: make}]\n")

    with pytest.raises(LanguageError):
        examine(tmp_path / "refused.yaml")

    assert kept(cache) == []


def test_a_text_that_replaces_the_file_is_not_kept(cache: Path, file: Path) -> None:
    examine(file, text=TEXT)

    assert kept(cache) == []
