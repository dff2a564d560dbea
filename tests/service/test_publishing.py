"""Publishing a project: what goes with a workflow, what never does, and what a server believes of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from mulligan.core.model.workflow import Workflow, decode, encode
from mulligan.errors import InputInvalid, LanguageError, MulliganError, Refused
from mulligan.language.published import finding_published
from mulligan.ports.bundles import Bundle, BundleFile, digest_of, encode_bundle
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import Home
from mulligan.service.server.catalogue.catalogue import Publication
from mulligan.service.server.publishing.parts import make_bundle, read_publishable
from mulligan.service.server.publishing.project_files import refuse_secret
from mulligan.service.service import Service

PYTHON = """
import helpers
from mulligan import flow, step


@step
def fetch(region: str) -> int:
    import lazy.deep
    return helpers.size(region) + lazy.deep.X


@flow
def region(name: str):
    return fetch(name)


@flow
def nightly(day: str = "monday"):
    return region.map([day, "north"]).results
"""
PROJECT = {
    "sales.py": PYTHON,
    "helpers.py": "from lazy import other\n\n\ndef size(text):\n    return len(text)\n",
    "lazy/__init__.py": "",
    "lazy/deep.py": "from . import third\nX = 3\n",
    "lazy/third.py": "",
    "lazy/other.py": "",
    "unused.py": "raise SystemExit\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], Path]:
    """Write the files of a project, and be in its folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    return write


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(Home(tmp_path / "home"), "ada") as opened:
        yield opened


def paths(file: str, *include: str) -> list[str]:
    return [one.file.path for one in read_publishable(Path(file), include=include).files]


def publish(service: Service, file: str, **options: object) -> Publication:
    with finding_published(service.catalogue.load):
        found = read_publishable(Path(file))
    return service.catalogue.publish_files(found, **options)  # type: ignore[arg-type]


Write = Callable[[Mapping[str, str]], Path]


def test_a_python_file_goes_with_the_modules_of_its_project_that_it_imports(project: Write) -> None:
    project(PROJECT)

    assert paths("sales.py:nightly") == [
        *("helpers.py", "lazy/__init__.py", "lazy/deep.py", "lazy/other.py", "lazy/third.py", "sales.py")
    ]


CHILD = """
inputs: {name: {default: north}}
steps:
  - {step: count, reads: [data/rows.csv], shell: cat data/rows.csv}
  - {step: size, needs: [count], python: {call: 'tools.text:size'}, args: {text: '${inputs.name}'}}
  - {step: inline, needs: [size], python: "import tools.more\\ndef main(): return tools.more.ONE"}
outputs: {size: '${steps.size.output}'}
"""
PARENT = "steps:\n  - {step: one, workflow: parts/region.yaml}\n  - {step: write, shell: x, writes: [out.txt]}\n"
YAML_PROJECT = {
    "nightly.yaml": PARENT,
    "parts/region.yaml": CHILD,
    "tools/text.py": "def size(text):\n    return len(text)\n",
    "tools/more.py": "ONE = 1\n",
    "data/rows.csv": "a\n",
    "data/more.csv": "b\n",
}


def test_a_file_goes_with_the_workflows_modules_and_data_that_it_names(project: Write) -> None:
    project(YAML_PROJECT)

    assert paths("nightly.yaml") == [
        *("data/rows.csv", "nightly.yaml", "parts/region.yaml", "tools/more.py", "tools/text.py")
    ]
    assert "data/more.csv" in paths("nightly.yaml", "data/*.csv")
    assert "data/more.csv" in paths("nightly.yaml", "data")


def test_a_file_that_is_not_there_is_warned_of_and_its_worker_has_to_have_it(project: Write) -> None:
    project({"flow.yaml": "steps: [{step: a, reads: [rows.csv, /etc/hosts], shell: cat rows.csv}]"})

    found = read_publishable(Path("flow.yaml"))

    assert ([one.code for one in found.warnings], found.is_text_alone) == (["warning.file"], True)


def test_the_root_is_the_folder_with_the_project_file(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(
        {"mulligan.toml": "", "flows/a.py": PYTHON.replace("import helpers", "import helpers as h"), **PROJECT}
    )
    monkeypatch.chdir(folder / "flows")

    found = read_publishable(Path("a.py:nightly"))

    assert found.entry == "flows/a.py:nightly"
    assert {"flows/a.py", "helpers.py"} <= {one.file.path for one in found.files}
    assert Path.cwd() == folder / "flows"


def refused(file: str, *include: str) -> str:
    with pytest.raises(MulliganError) as error:
        read_publishable(Path(file), include=include)
    return error.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "A=1"),
        ("config/prod.env", ""),
        ("keys/server.pem", ""),
        ("id_rsa", ""),
        ("credentials.json", "{}"),
        ("terraform.tfstate", "{}"),
        ("notes.txt", "-----BEGIN RSA PRIVATE KEY-----"),
        ("notes.txt", "ghp_" + "a" * 40),
        ("notes.txt", "AKIA" + "A" * 16),
    ],
)
def test_a_file_that_looks_like_a_secret_is_refused(name: str, text: str, project: Write) -> None:
    project({"flow.yaml": "steps: [{step: a, shell: echo}]", name: text})

    assert refused("flow.yaml", name).startswith(f"'{name}' is not published: ")


def test_a_module_with_a_key_in_it_is_refused_too(project: Write) -> None:
    project({**PROJECT, "helpers.py": PROJECT["helpers.py"] + f"KEY = 'ghp_{'b' * 40}'\n"})

    assert refused("sales.py:nightly") == "'helpers.py' is not published: there is a key or a token in it"


@pytest.mark.parametrize(
    "name", ["secrets.py", ".env.example", "tokens.py", "keys.csv", "id_rsa.pub", "environment.yaml"]
)
def test_a_file_that_only_sounds_like_one_is_published(name: str) -> None:
    refuse_secret(name, b"rows")


def test_nothing_outside_of_the_project_is_published(project: Write, tmp_path: Path) -> None:
    (tmp_path / "outside.csv").write_text("secret")
    (tmp_path / "child.yaml").write_text("steps: [{step: a, shell: echo}]")
    folder = project(
        {
            "flow.yaml": "steps: [{step: a, shell: echo}]",
            "reads.yaml": "steps: [{step: a, shell: echo, reads: [../outside.csv]}]",
            "linked.yaml": "steps: [{step: a, shell: echo, reads: [link.csv]}]",
            "calls.yaml": "steps: [{step: a, workflow: ../child.yaml}]",
        }
    )
    (folder / "link.csv").symlink_to(tmp_path / "outside.csv")
    (folder / "folder").symlink_to(tmp_path)

    for file in ("reads.yaml", "linked.yaml", "calls.yaml"):
        assert "outside the project" in refused(file), file
    for pattern in ("../*", "/etc/passwd", "link.csv", "folder/*.csv"):
        message = refused("flow.yaml", pattern)
        assert "leads out of the project" in message or "outside the project" in message, message


def test_what_git_ignores_is_not_published(project: Write) -> None:
    project(
        {
            ".gitignore": "local/\n*.tmp\n",
            "flow.yaml": "steps: [{step: a, shell: echo, reads: [./data]}]",
            "named.yaml": "steps: [{step: a, shell: echo, reads: [a.tmp]}]",
            "data/rows.csv": "a",
            "data/x.tmp": "b",
            "a.tmp": "c",
            **PROJECT,
            "sales.py": "import local.mine\n" + PYTHON,
            "local/mine.py": "",
        }
    )

    assert paths("flow.yaml") == ["data/rows.csv", "flow.yaml"]
    assert "ignored by .gitignore" in refused("named.yaml")
    assert "'local/mine.py' (a module of the project) is ignored" in refused("sales.py:nightly")


def test_the_same_files_are_the_same_version_and_a_changed_module_is_another(service: Service, project: Write) -> None:
    folder = project(PROJECT)

    first = publish(service, "sales.py:nightly", note="begin")
    again = publish(service, "sales.py:nightly")
    (folder / "lazy/deep.py").write_text("X = 4\n")
    dry = publish(service, "sales.py:nightly", dry_run=True)
    second = publish(service, "sales.py:nightly")
    labelled = publish(service, "sales.py:nightly", labels={"team": "sales"})

    numbers = [(one.workflow.version, one.is_new) for one in (first, again, dry, second, labelled)]
    assert numbers == [(1, True), (1, False), (2, True), (2, True), (3, True)]
    assert service.catalogue.load("nightly", 1).source != service.catalogue.load("nightly", 2).source
    shown = service.catalogue.workflow("nightly", 1)
    assert (shown.text, shown.file, shown.digest[:6]) == (PYTHON, "nightly.py", "files:")
    assert "lazy/third.py" in {one.path for one in shown.files}
    prepared = service.catalogue.prepare("nightly", 1, cwd=folder)
    assert (str(prepared.cwd), prepared.labels["version"]) == (".", "1")


def test_a_dry_run_writes_nothing(tmp_path: Path, project: Write) -> None:
    project(PROJECT)
    with Service(Home(tmp_path / "empty"), "ada") as service:
        done = publish(service, "sales.py:nightly", dry_run=True)

    assert (done.workflow.version, done.is_new, len(done.workflow.files)) == (1, True, 6)
    assert not (tmp_path / "empty").exists()


def test_a_published_workflow_is_a_child_with_its_own_files(service: Service, project: Write) -> None:
    project({**YAML_PROJECT, "other.yaml": "steps: [{step: a, workflow: {file: 'region@1', inputs: {name: x}}}]"})
    publish(service, "parts/region.yaml")

    parent = publish(service, "other.yaml")
    text = service.catalogue.publish("texts", "steps: [{step: a, workflow: region@1}]")

    source = service.catalogue.load("region").source
    for name in (parent.workflow.name, text.workflow.name):
        assert service.catalogue.load(name).children["region@1"].source == source != ""
    assert parent.workflow.files == ()  # a text alone, which names no file


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("region@9", "'region' has no version 9"),
        ("missing@1", "no workflow 'missing' is published"),
        ("region@latest", "'region@latest' may be another workflow tomorrow"),
    ],
)
def test_a_child_that_is_not_published_is_refused(word: str, said: str, service: Service, project: Write) -> None:
    project({**YAML_PROJECT, "other.yaml": f"steps: [{{step: a, workflow: {word}}}]"})
    publish(service, "parts/region.yaml")

    with pytest.raises(LanguageError) as error:
        publish(service, "other.yaml")

    assert error.value.problems[0].message == said


def test_a_flow_calls_what_is_published(service: Service, project: Write) -> None:
    flow = "import mulligan\n\n\n@mulligan.flow\ndef both():\n    return mulligan.call_file('a', 'region@1')\n"
    project({**YAML_PROJECT, "both.py": flow})
    publish(service, "parts/region.yaml")

    publish(service, "both.py")

    assert service.catalogue.load("both").children["region@1"].source


def test_coverage_of_a_version_with_files_is_that_of_its_definition(service: Service, project: Write) -> None:
    project(PROJECT)
    publish(service, "sales.py:nightly")

    assert service.workflows.play_published("nightly").cover().workflow == "nightly"


# -- what a server believes ------------------------------------------------------------------------------------------


def sent(service: Service, workflow: Workflow, *files: BundleFile, contents: tuple[bytes, ...] = ()) -> str:
    """Send a bundle as a client of a server might, whatever it says; its digest."""
    definition = encode(workflow)
    manifest = msgspec.json.encode(Bundle(digest_of(definition), files), order="sorted")
    for content in (definition, manifest, *contents):
        service.catalogue.put_content(digest_of(content), content)
    return digest_of(manifest)


def a_workflow(text: str = "steps: [{step: a, shell: echo}]") -> Workflow:
    from mulligan.service.server.catalogue.texts import WorkflowText, read_text

    return read_text(WorkflowText(text, "a.yaml")).workflow


def test_a_bundle_counts_only_with_all_that_it_names(service: Service) -> None:
    missing = sent(service, a_workflow(), BundleFile("a.py", 3, digest_of(b"xyz")))
    outside = sent(service, a_workflow(), BundleFile("../a.py", 3, digest_of(b"abc")), contents=(b"abc",))
    unknown = "0" * 64

    for digest in (missing, outside, unknown, "x"):
        with pytest.raises(InputInvalid):
            service.catalogue.publish("a", "", bundle=digest)
    assert service.catalogue.workflows().workflows == ()


def test_what_people_read_of_a_bundle_is_the_file_that_was_published(service: Service, project: Write) -> None:
    project(PROJECT)
    bundle = service.catalogue.send_files(read_publishable(Path("sales.py:nightly")), {})

    for text in ("", PYTHON + "# more"):
        with pytest.raises(InputInvalid, match="the text is not that of the file"):
            service.catalogue.publish("a", text, bundle=bundle.digest)
    with pytest.raises(InputInvalid, match="the text is not that of the file"):
        service.catalogue.publish("a", "steps: []", bundle=sent(service, a_workflow()))
    service.catalogue.publish("a", PYTHON, bundle=bundle.digest)


def test_a_content_is_kept_only_under_its_own_hash(service: Service) -> None:
    with pytest.raises(InputInvalid):
        service.catalogue.put_content(digest_of(b"a"), b"b")


def test_a_definition_that_the_language_could_not_have_made_is_refused(service: Service) -> None:
    checked = a_workflow()
    step = msgspec.structs.replace(checked.steps[0], timeout=-1.0)
    broken = msgspec.structs.replace(checked, steps=(step,))

    with pytest.raises(InputInvalid, match="cannot be run"):
        service.catalogue.publish("a", "", bundle=sent(service, broken))


def test_a_schedule_that_no_file_could_say_is_refused(service: Service) -> None:
    checked = a_workflow("schedules: {often: {every: 1h}}\nsteps: [{step: a, shell: echo}]")
    often = msgspec.structs.replace(checked.schedules["often"], every=1e-9)
    hostile = msgspec.structs.replace(checked, schedules={"often": often})

    with pytest.raises(InputInvalid, match="cannot be followed"):
        service.catalogue.publish("a", "", bundle=sent(service, hostile))


def test_a_schedule_that_counts_from_an_instant_of_no_zone_is_refused(service: Service) -> None:
    checked = a_workflow("schedules: {often: {every: 1h}}\nsteps: [{step: a, shell: echo}]")
    often = msgspec.structs.replace(checked.schedules["often"], anchor=datetime(2026, 1, 1))
    hostile = msgspec.structs.replace(checked, schedules={"often": often})

    with pytest.raises(InputInvalid, match="no time zone"):
        service.catalogue.publish("a", "", bundle=sent(service, hostile))


def test_a_schedule_of_another_workflow_is_not_taken_over(service: Service) -> None:
    text = "schedules: {NAME: {every: 1h}}\nsteps: [{step: a, shell: echo}]"
    service.catalogue.publish("sales.night", text.replace("NAME", "east"))
    checked = a_workflow(text.replace("NAME", "often"))
    hostile = msgspec.structs.replace(checked, schedules={"night.east": checked.schedules["often"]})

    with pytest.raises(Refused, match=r"belongs to 'sales\.night'"):
        service.catalogue.publish("sales", "", bundle=sent(service, hostile))

    assert service.schedules.show("sales.night.east").workflow == "sales.night"


def test_a_publisher_does_not_say_whose_files_a_version_has(service: Service) -> None:
    pretended = msgspec.structs.replace(a_workflow(), source="f" * 64)

    digest = sent(service, pretended)
    service.catalogue.publish("a", "", bundle=digest)

    assert service.catalogue.load("a").source == digest


def test_a_definition_keeps_what_an_older_version_wrote() -> None:
    assert decode(b'{"name":"a","steps":[],"end":{}}').source == ""


def test_the_order_of_files_does_not_change_a_bundle(project: Write) -> None:
    project(PROJECT)
    found = read_publishable(Path("sales.py:nightly"))
    turned = msgspec.structs.replace(found, files=found.files[::-1])

    assert make_bundle(found).digest == make_bundle(turned).digest
    assert encode_bundle(make_bundle(found).bundle) == encode_bundle(make_bundle(turned).bundle)


def test_a_script_may_still_be_executed(project: Write) -> None:
    folder = project({"flow.yaml": "steps: [{step: a, shell: ./run.sh, reads: [run.sh]}]", "run.sh": "#!/bin/sh\n"})
    os.chmod(folder / "run.sh", 0o755)

    assert {one.file.path: one.file.executable for one in read_publishable(Path("flow.yaml")).files} == {
        "flow.yaml": False,
        "run.sh": True,
    }


PRODIGY = "imports: [parts.yml]\nenv_files: [ENV]\ncommands: [{shell: echo a}]\n"


def test_a_file_of_another_system_goes_with_what_it_names(service: Service, project: Write) -> None:
    project({"main.yml": PRODIGY.replace("ENV", "names.txt"), "parts.yml": "env: {B: c}\n", "names.txt": "A=1\n"})

    done = publish(service, "main.yml")

    assert [one.path for one in done.workflow.files] == ["main.yml", "names.txt", "parts.yml"]
    assert service.catalogue.load("main").origin == "prodigy"


def test_what_it_reads_of_a_file_with_secrets_is_not_published_either(service: Service, project: Write) -> None:
    project({"main.yml": PRODIGY.replace("ENV", "prod.env"), "parts.yml": "env: {B: c}\n", "prod.env": "A=1\n"})

    assert "'prod.env' is not published" in refused("main.yml")


# -- running what was published --------------------------------------------------------------------------------------

RAN = """
inputs: {name: {default: north}}
steps:
  - {step: count, reads: [data/rows.csv], shell: cat data/rows.csv; echo seen > seen.txt}
  - {step: size, needs: [count], python: {call: 'tools:size'}, args: {text: '${inputs.name}'}}
outputs: {size: '${steps.size.output}', rows: '${steps.count.output}'}
"""


def test_a_run_needs_none_of_the_files_and_each_child_has_those_of_its_version(
    service: Service, project: Write, tmp_path: Path
) -> None:
    size = "def size(text):\n    return len(text)\n"
    folder = project({"region.yaml": RAN, "data/rows.csv": "a\n", "tools.py": size})
    publish(service, "region.yaml")
    (folder / "data/rows.csv").write_text("b\n")
    (folder / "tools.py").write_text(size.replace("len", "-len"))
    calls = "steps: [{step: old, workflow: region@1}, {step: own, workflow: region.yaml}]\n"
    project({"both.yaml": f"{calls}outputs: {{old: '${{steps.old.output}}', own: '${{steps.own.output}}'}}"})
    publish(service, "both.yaml")
    shutil.rmtree(folder)
    folder.mkdir()
    os.chdir(folder)

    (run_id,) = service.changes.create(service.catalogue.prepare("both"))
    with service.driving.driver(Capacity(cpus=2.0, memory=1 << 30)) as driver:
        driver.drive(run_id, 0.0)

    outputs = service.runs.show(run_id)["outputs"]
    assert outputs == {"old": {"size": 5, "rows": "a"}, "own": {"size": -5, "rows": "b"}}
    home = tmp_path / "home"
    assert sorted(path.parent.parent.name for path in home.glob("*/*/seen.txt")) == ["work", "work"]
    assert list(folder.iterdir()) == []
