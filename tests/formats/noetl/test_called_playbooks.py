"""Where called playbooks are found: beside the file, in a catalogue, and by a path that the workload gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.commands import mulligan

import mulligan as library
from mulligan.errors import LanguageError
from mulligan.formats import load

CHILD = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {{name: {name}, path: {path}}}
workload: {{n: 0}}
workflow:
  - {{step: say, tool: {{kind: python, code: "result = '{name}'"}}}}
"""


def child(folder: Path, file: str, *, name: str, path: str = "none") -> None:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(CHILD.format(name=name, path=path))


def caller(folder: Path, file: str, path: str, workload: str = "{}") -> Path:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(
        "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: caller}\n"
        f'workload: {workload}\nworkflow:\n  - {{step: call, tool: {{kind: playbook, path: "{path}"}}}}\n'
    )
    return folder / file


def called(file: Path, **how: object) -> list[str]:
    """The names of the workflows that a file calls."""
    return [found.name for found in load(file, **how).children.values()]


# -- the catalogue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["common/notify", "common/notify.yaml", "catalog/tools/notify"])
def test_a_playbook_is_found_below_a_folder_above_by_its_place_or_its_path(folder: Path, path: str):
    child(folder, "common/notify.yaml", name="notify", path="catalog/tools/notify")
    child(folder, "etl/daily/other.yaml", name="other")

    assert called(caller(folder, "etl/daily/main.yaml", path)) == ["notify"]


def test_the_nearest_folder_that_has_the_playbook_counts(folder: Path):
    child(folder, "etl/common/notify.yaml", name="near")
    child(folder, "common/notify.yaml", name="far")

    assert called(caller(folder, "etl/daily/main.yaml", "common/notify")) == ["near"]


def test_the_search_ends_at_the_root_of_the_repository(folder: Path):
    child(folder, "notify.yaml", name="outside", path="tools/notify")
    (folder / "repository/.git").mkdir(parents=True)
    main = caller(folder, "repository/flows/main.yaml", "tools/notify")

    with pytest.raises(LanguageError):
        load(main)

    child(folder, "repository/lib/notify.yaml", name="inside", path="tools/notify")
    assert called(main) == ["inside"]


def test_without_a_repository_it_ends_at_the_nearest_folder_above_with_several_playbooks(folder: Path):
    child(folder, "lib/notify.yaml", name="another project's", path="tools/notify")
    child(folder, "project/other.yaml", name="other")

    with pytest.raises(LanguageError):
        load(caller(folder, "project/flows/main.yaml", "tools/notify"))


def test_a_named_catalogue_is_the_only_one(folder: Path):
    child(folder, "project/lib/notify.yaml", name="of the project", path="tools/notify")
    child(folder, "catalogue/a/b.yaml", name="of the catalogue", path="tools/notify")
    main = caller(folder, "project/flows/main.yaml", "tools/notify")

    assert called(main) == ["of the project"]
    assert called(main, catalogue=folder / "catalogue") == ["of the catalogue"]
    assert [one.name for one in library.load(main, catalogue=folder / "catalogue").workflow.children.values()] == [
        "of the catalogue"
    ]


def test_two_playbooks_of_one_path_are_refused_by_name(folder: Path):
    child(folder, "v1/notify.yaml", name="old", path="tools/notify")
    child(folder, "v2/notify.yaml", name="new", path="tools/notify")

    with pytest.raises(LanguageError) as refused:
        load(caller(folder, "flows/main.yaml", "tools/notify"))

    [problem] = refused.value.problems
    assert "'v1/notify.yaml' and 'v2/notify.yaml'" in problem.message
    assert "--catalogue" in problem.hint


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "nowhere", ""])
def test_a_path_that_leads_nowhere_is_refused(folder: Path, path: str):
    child(folder, "lib/notify.yaml", name="notify")

    with pytest.raises(LanguageError):
        load(caller(folder, "flows/main.yaml", path))


def test_files_that_cannot_be_read_and_hidden_folders_are_passed_by(folder: Path):
    child(folder, ".cache/notify.yaml", name="hidden", path="tools/notify")
    (folder / "broken.yaml").write_bytes(b"\xff\xfe tools/notify")
    os.mkfifo(folder / "a-pipe.yaml")
    child(folder, "lib/notify.yaml", name="right", path="tools/notify")

    assert called(caller(folder, "flows/main.yaml", "tools/notify")) == ["right"]


def test_the_option_names_a_folder_and_is_for_noetl_files(folder: Path):
    child(folder, "catalogue/notify.yaml", name="notify", path="tools/notify")
    main = caller(folder, "flows/main.yaml", "tools/notify")
    (folder / "ours.yaml").write_text("name: ours\nsteps: [{step: a, shell: 'true'}]\n")

    run = mulligan("run", main, "--catalogue", "catalogue", "--json")
    no_folder = mulligan("validate", main, "--catalogue", "nowhere")
    ours = mulligan("validate", "ours.yaml", "--catalogue", "catalogue")

    assert run.json["outputs"] == {"result": "notify"}
    assert (no_folder.code, "'nowhere', which is not a folder" in no_folder.err) == (2, True)
    assert (ours.code, "--catalogue is for NoETL files" in ours.err) == (2, True)


# -- a path from the workload ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "workload", "given", "name"),
    [
        ("{{ workload.which }}", "{which: one}", {}, "one"),
        ("{{ workload.which }}", "{which: one}", {"which": "two"}, "two"),
        ("{{ ctx.which }}", "{which: null}", {"which": "two"}, "two"),
        ("{{ which }}.yaml", "{which: two}", {}, "two"),
        ("{{ workload.which | default('one') }}", "{}", {}, "one"),
    ],
)
def test_a_path_from_the_workload_is_resolved_when_the_run_starts(
    folder: Path, path: str, workload: str, given: dict[str, str], name: str
):
    child(folder, "one.yaml", name="one")
    child(folder, "two.yaml", name="two")

    assert called(caller(folder, "main.yaml", path, workload), given=given) == [name]


@pytest.mark.parametrize(
    "path", ["{{ workload.which }}", "{{ earlier.path }}", "{{ 'a' * 3 }}", "{% if x %}one{% endif %}"]
)
def test_a_path_that_is_not_known_then_is_refused_with_what_to_write(folder: Path, path: str):
    child(folder, "one.yaml", name="one")

    with pytest.raises(LanguageError) as refused:
        load(caller(folder, "main.yaml", path, "{which: '{{ other }}'}"))

    [problem] = refused.value.problems
    assert "is not known when the run starts" in problem.message and "-i" in problem.hint


def test_the_input_of_a_run_chooses_the_playbook_and_no_other_is_called(folder: Path):
    child(folder, "one.yaml", name="one")
    child(folder, "two.yaml", name="two")
    main = caller(folder, "main.yaml", "{{ workload.which }}", "{which: one}")

    assert mulligan("run", main, "-i", "which=two", "--json").json["outputs"] == {"result": "two"}
    # The file was read before the input was known.
    late = library.run(library.load(main), which="two")
    assert (late.status, late.steps["call_input"].failure.code) == ("failed", "INPUT_INVALID")
    assert "'two', but 'one' was pinned" in late.steps["call_input"].failure.message


def test_a_corrected_file_is_read_with_the_inputs_of_the_run(folder: Path):
    child(folder, "one.yaml", name="one")
    child(folder, "two.yaml", name="two")
    main = caller(folder, "main.yaml", "{{ workload.which }}", "{which: one}")
    run = library.run(main, which="two")

    forked = run.fork("call_input", flow=main)
    planned = mulligan("fork", run.id, "--from", "call_input", "--file", main, "--dry-run", "--json").json

    assert forked.outputs == {"result": "two"}
    assert planned["changed"] == []
