"""Deploying a project: everything or nothing, again and again, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mulligan.errors import LanguageError, MulliganError
from mulligan.service.home import Home
from mulligan.service.server.publishing.deploying import Deployment, deploy
from mulligan.service.server.publishing.project_config import parse_project
from mulligan.service.service import Service

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
PROJECT = """
name = "sales"

[labels]
team = "sales"

[workflows.nightly]
file = "nightly.yaml"

[workflows.region]
file = "region.yaml"
include = ["data/*.csv"]
labels = {team = "regions"}

[schedules.night]
workflow = "nightly"
cron = "30 2 * * *"
inputs = {day = "${schedule.date}"}

[[notices]]
on = ["failed"]
to = ["ops"]
workflows = ["nightly"]
"""
FILES = {
    "mulligan.toml": PROJECT,
    "nightly.yaml": "inputs: {day: {default: monday}}\nsteps: [{step: one, workflow: region.yaml}]\n",
    "region.yaml": "steps: [{step: count, shell: cat data/rows.csv}]\n",
    "data/rows.csv": "a\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(Home(tmp_path / "home"), "ada") as opened:
        yield opened


Deploy = Callable[..., Deployment]


@pytest.fixture
def deployed(service: Service, folder: Path) -> Deploy:
    return lambda **options: deploy(service.catalogue, folder, NOW, **options)


def changes(done: Deployment) -> dict[str, str]:
    found = {one.name: f"{one.change} {one.version}" for one in done.workflows}
    return found | {one.name: one.change for one in done.schedules}


def test_a_project_is_deployed_once_however_often_it_is(deployed: Deploy, service: Service) -> None:
    dry, first, again = deployed(dry_run=True), deployed(note="begin"), deployed()

    created = {"nightly": "created 1", "region": "created 1", "nightly.night": "created"}
    assert changes(dry) == changes(first) == created
    assert changes(again) == {"nightly": "unchanged 1", "region": "unchanged 1", "nightly.night": "unchanged"}
    assert (first.is_changed, again.is_changed) == (True, False)
    (schedule,) = service.schedules.all()
    assert (schedule.name, schedule.workflow, schedule.cron) == ("nightly.night", "nightly", "30 2 * * *")
    nightly, region = service.catalogue.workflow("nightly"), service.catalogue.workflow("region")
    assert (nightly.labels, nightly.note) == ({"team": "sales", "deployment": "sales"}, "begin")
    assert region.labels == {"team": "regions", "deployment": "sales"}
    assert [one.path for one in nightly.files] == ["nightly.yaml", "region.yaml"]
    assert [one.path for one in region.files] == ["data/rows.csv", "region.yaml"]
    assert [rule.to for rule in service.catalogue.load("nightly").notify] == [("ops",)]
    assert service.catalogue.load("region").notify == ()


def test_what_has_changed_is_said(deployed: Deploy, folder: Path) -> None:
    deployed()
    (folder / "data/more.csv").write_text("b\n")
    (folder / "data/rows.csv").write_text("c\n")
    text = PROJECT.replace("30 2", "31 2").replace('"failed"', '"failed", "degraded"').replace('"regions"', '"east"')
    (folder / "mulligan.toml").write_text(text)

    done = deployed()

    assert changes(done) == {"nightly": "changed 2", "region": "changed 2", "nightly.night": "changed"}
    assert [(one.files, one.settings) for one in done.workflows] == [
        ((), ("schedules", "notices")),
        (("+ data/more.csv", "~ data/rows.csv"), ("labels",)),
    ]


def test_a_schedule_that_is_taken_out_ends_and_a_pause_survives(
    deployed: Deploy, folder: Path, service: Service
) -> None:
    deployed()
    service.schedules.pause("nightly.night", "holidays")
    (folder / "nightly.yaml").write_text(FILES["nightly.yaml"].replace("monday", "tuesday"))
    deployed()
    paused = service.schedules.show("nightly.night").is_paused
    without = PROJECT[: PROJECT.index("[schedules")] + PROJECT[PROJECT.index("[[notices") :]
    (folder / "mulligan.toml").write_text(without)

    done = deployed()

    assert paused
    assert changes(done)["nightly.night"] == "removed"
    assert service.schedules.all() == []


def test_what_is_no_longer_in_the_project_is_named_and_goes_on(
    deployed: Deploy, folder: Path, service: Service
) -> None:
    deployed()
    (folder / "mulligan.toml").write_text('name = "sales"\n[workflows.region]\nfile = "region.yaml"\n')

    done = deployed()

    assert [(one.name, one.version, one.schedules) for one in done.left] == [("nightly", 1, ("nightly.night",))]
    assert [one.name for one in service.schedules.all()] == ["nightly.night"]


def test_nothing_is_published_unless_everything_can_be(deployed: Deploy, folder: Path, service: Service) -> None:
    (folder.parent / "rows.csv").write_text("outside")
    for name, text in (
        ("region.yaml", "steps: [{step: a, shel: echo}]"),
        ("region.yaml", "steps: [{step: a, reads: [../rows.csv], shell: echo}]"),
        ("data/key.csv", "-----BEGIN PRIVATE KEY-----"),
        ("mulligan.toml", PROJECT.replace("30 2 * * *", "99 2 * * *")),
        ("mulligan.toml", PROJECT.replace("day =", "night =")),
    ):
        kept = (folder / name).read_text() if (folder / name).exists() else ""
        (folder / name).write_text(text)
        with pytest.raises(MulliganError):
            deployed()
        (folder / name).write_text(kept)

    assert service.catalogue.workflows().workflows == ()


def test_two_projects_do_not_take_a_workflow_from_each_other(deployed: Deploy, folder: Path) -> None:
    deployed()
    (folder / "mulligan.toml").write_text(PROJECT.replace('name = "sales"', 'name = "other"'))

    with pytest.raises(MulliganError, match="'nightly' belongs to the deployment 'sales'"):
        deployed()


def test_what_was_published_by_hand_becomes_part_of_the_project(deployed: Deploy, service: Service) -> None:
    service.catalogue.publish("region", FILES["region.yaml"])

    assert changes(deployed())["region"] == "changed 2"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("cron =", "corn =", 17, "unknown key 'corn'"),
        ('workflow = "nightly"', 'workflow = "nihgtly"', 16, "'nihgtly' is not a workflow of the project"),
        ('workflows = ["nightly"]', 'workflows = ["x"]', 20, "'x' is not a workflow of the project"),
        ('on = ["failed"]', 'on = ["broken"]', 21, "'notices.on': invalid enum value 'broken'"),
        ('to = ["ops"]', 'to = ["a b"]', 20, "a target of notices has a name of letters, digits, '_' and '-'"),
        ("[schedules.night]", "[schedules.'a b']", 15, "'a b' cannot be the name of a schedule"),
        ('team = "sales"', "team = 3", 4, "'labels': expected 'str', got 'int'"),
        ('team = "sales"', 'deployment = "x"', 0, "the label 'deployment' is that of the deployment"),
        ('name = "sales"', 'name = "a b"', 0, "'a b' cannot be the name of a deployment"),
        ('name = "sales"', "name = ", 2, "not TOML: invalid value"),
        ('cron = "30 2 * * *"', 'cron = "30 2 * * *"\nversion = 2', 18, "a schedule of a project starts the newest"),
    ],
)
def test_a_mistake_in_the_file_is_refused_at_its_line(old: str, new: str, line: int, said: str) -> None:
    text = PROJECT.replace(old, new, 1)
    assert text != PROJECT

    with pytest.raises(LanguageError) as error:
        parse_project(text, "mulligan.toml", "project")

    (problem,) = error.value.problems
    assert (problem.line, problem.message[: len(said)]) == (line, said)


def test_a_project_without_a_name_has_that_of_its_folder() -> None:
    assert parse_project("[workflows.a]\nfile = 'a.yaml'", "mulligan.toml", "My project").name == "My-project"


def test_a_workflow_of_a_project_is_below_its_folder(deployed: Deploy, folder: Path) -> None:
    (folder.parent / "outside.yaml").write_text("steps: [{step: a, shell: echo}]")
    (folder / "mulligan.toml").write_text('[workflows.a]\nfile = "../outside.yaml"\n')

    with pytest.raises(MulliganError, match="outside the project"):
        deployed()


def test_a_project_file_in_a_folder_below_is_not_another_project(deployed: Deploy, folder: Path) -> None:
    (folder / "data" / "mulligan.toml").write_text("")
    (folder / "data" / "inner.yaml").write_text("steps: [{step: a, workflow: ../region.yaml}]")
    (folder / "mulligan.toml").write_text('[workflows.a]\nfile = "data/inner.yaml"\n')

    assert [one.count for one in deployed().workflows] == [2]
