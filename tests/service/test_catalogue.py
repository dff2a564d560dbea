"""Published workflows: versions that never change, drafts with revisions, texts that read no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import InputInvalid, LanguageError, Refused, RevisionMismatch
from mulligan.service.home import Home
from mulligan.service.server.catalogue import catalogue
from mulligan.service.server.catalogue.catalogue import Catalogue, UnknownWorkflow
from mulligan.service.server.catalogue.texts import WorkflowText, read_text
from mulligan.service.service import Service

HELLO = "name: greeting\ninputs: {who: {default: world}}\nsteps:\n  - step: hello\n    shell: echo hi ${inputs.who}\n"
TORC = """\
name: two
jobs:
  - name: first
    command: echo 1
  - name: second
    command: echo 2
    depends_on: [first]
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(Home(tmp_path / "home"), "ada") as opened:
        yield opened


def test_the_same_text_is_the_same_version_and_another_text_is_the_next(service: Service) -> None:
    first = service.catalogue.publish("hello", HELLO, note="begin")
    again = service.catalogue.publish("hello", HELLO, note="ignored")
    second = service.catalogue.publish("hello", HELLO + "# changed\n")

    assert [(one.workflow.version, one.is_new) for one in (first, again, second)] == [(1, True), (1, False), (2, True)]
    assert service.catalogue.workflow("hello", 1).text == HELLO
    assert service.catalogue.workflow("hello", 1).note == "begin"
    assert service.catalogue.workflow("hello").version == 2
    assert [one.version for one in service.catalogue.versions("hello").workflows] == [2, 1]
    assert [(one.name, one.published_by) for one in service.catalogue.workflows().workflows] == [("hello", "ada")]


def test_a_dry_run_publishes_nothing(service: Service) -> None:
    would = service.catalogue.publish("hello", HELLO, dry_run=True)

    assert (would.workflow.version, would.is_new, would.dry_run) == (1, True, True)
    assert service.catalogue.workflows().workflows == ()


@pytest.mark.parametrize(
    ("text", "file", "name"),
    [
        (HELLO, "other.yaml", "greeting"),
        (HELLO.replace("greeting", "Load it (daily)"), "other.yaml", "Load-it-daily"),
        (HELLO.replace("name: greeting\n", ""), "nightly.yaml", "nightly"),
        (HELLO.replace("greeting", "приветствие"), "nightly.v2.yaml", "nightly"),
        (TORC, "other.yaml", "two"),
    ],
)
def test_a_file_is_published_under_the_name_of_its_workflow(text: str, file: str, name: str) -> None:
    workflow = read_text(WorkflowText(text, file)).workflow

    assert Catalogue.name_for(workflow.name, file) == name


def test_a_list_is_paged(service: Service) -> None:
    for name in ("a", "b", "c"):
        service.catalogue.publish(name, HELLO)
    for number in range(3):
        service.catalogue.publish("c", f"{HELLO}# {number}\n")

    first = service.catalogue.workflows(limit=2)
    rest = service.catalogue.workflows(after=first.next or "", limit=2)
    newest = service.catalogue.versions("c", limit=3)
    oldest = service.catalogue.versions("c", before=int(newest.next or 0), limit=3)

    assert [one.name for one in (*first.workflows, *rest.workflows)] == ["a", "b", "c"]
    assert [one.version for one in (*newest.workflows, *oldest.workflows)] == [4, 3, 2, 1]
    assert (rest.next, oldest.next) == (None, None)


def test_a_run_has_the_published_name_and_its_version(service: Service, tmp_path: Path) -> None:
    service.catalogue.publish("hello", HELLO, labels={"team": "night"})

    prepared = service.catalogue.prepare("hello", None, {"who": "you"}, {"why": "test"}, cwd=tmp_path)
    (run_id,) = service.changes.create(prepared)

    assert service.runs.records([run_id])[0].workflow == "hello"
    assert prepared.labels == {"team": "night", "version": "1", "why": "test"}
    assert prepared.inputs == {"who": "you"}


def test_files_of_other_systems_are_read_as_such(service: Service) -> None:
    published = service.catalogue.publish("two", TORC).workflow
    kdl = service.catalogue.publish("one", 'name "one"\njob "a" {\n    command "echo 1"\n}\n', file="one.kdl").workflow

    assert (published.format, kdl.format) == ("torc", "torc")
    assert [step.name for step in service.catalogue.load("two").steps] == ["first", "second"]
    assert [step.name for step in service.catalogue.load("one").steps] == ["a"]
    assert "first" in service.catalogue.convert(TORC).text


@pytest.mark.parametrize(
    "text",
    [
        "steps:\n  - step: child\n    workflow: other.yaml\n",
        "env_files: [secret.env]\ncommands:\n  - shell: echo hi\n",
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a}\nworkflow:\n"
        "  - step: start\n    tool: {kind: playbook, path: other}\n",
    ],
    ids=["ours", "prodigy", "noetl"],
)
def test_a_text_that_names_another_file_is_refused_and_the_file_is_not_read(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("other.yaml", "secret.env"):
        Path(name).write_text("SECRET=abc\nsteps: []\n")

    found = service.catalogue.validate(text)

    assert not found.ok
    assert "a text that is sent alone cannot include other files" in found.problems[0].message
    assert "abc" not in found.problems[0].render()


def test_a_python_file_is_refused_and_nothing_of_it_runs(service: Service, tmp_path: Path) -> None:
    made = tmp_path / "made"

    with pytest.raises(InputInvalid, match="Python file"):
        service.catalogue.publish("a", f"open({str(made)!r}, 'w')", file="a.py")

    assert not made.exists()


def test_a_proposal_is_a_draft_with_what_differs_and_never_a_version(service: Service) -> None:
    service.catalogue.publish("hello", HELLO)
    agent = service.as_user("agent:night").catalogue
    changed = HELLO.replace("echo hi", "echo hello")

    trial = agent.propose("hello", changed, note="friendlier", dry_run=True)
    assert service.catalogue.drafts() == []
    made = agent.propose("hello", changed, note="friendlier")
    again = agent.propose("hello", changed + "# more\n")
    new = agent.propose("other", HELLO)

    assert (trial.revision, made.revision, again.revision) == (0, 1, 2)
    assert (made.changes_version, made.would_be_version) == (1, 2)
    assert made.diff == trial.diff
    removed, added = (line for line in made.diff.splitlines() if line[0] in "+-")
    assert (removed[0], "echo hi" in removed, added[0], "echo hello" in added) == ("-", True, "+", True)
    assert (new.changes_version, new.would_be_version) == (0, 1)
    assert [one.version for one in service.catalogue.workflows().workflows] == [1]
    assert [(one.name, one.updated_by) for one in service.catalogue.drafts()] == [
        ("hello", "agent:night"),
        ("other", "agent:night"),
    ]


def test_a_user_has_a_bounded_number_and_size_of_drafts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of drafts have their texts, and whoever may propose is not to fill them for others."""
    agent = service.as_user("agent:night").catalogue
    monkeypatch.setattr(catalogue, "DRAFTS_MAX", 3)
    monkeypatch.setattr(catalogue, "DRAFTS_BYTES_MAX", 4 * len(HELLO))
    for name in ("a", "b", "c"):
        agent.put_draft(name, HELLO)

    for name, text in (("d", HELLO), ("c", HELLO * 3)):
        with pytest.raises(Refused):
            agent.put_draft(name, text, expected=None)

    agent.put_draft("c", HELLO + "# changed\n", expected=None)
    service.catalogue.put_draft("d", HELLO)
    assert [one.name for one in service.catalogue.drafts()] == ["a", "b", "c", "d"]


def test_a_proposal_leaves_the_draft_of_somebody_else_alone_and_has_no_mistakes(service: Service) -> None:
    service.catalogue.put_draft("hello", "name: [")
    agent = service.as_user("agent:night").catalogue

    with pytest.raises(Refused):
        agent.propose("hello", HELLO)
    with pytest.raises(LanguageError):
        agent.propose("other", "name: [")

    (draft,) = service.catalogue.drafts()
    assert (draft.text, draft.updated_by, draft.revision) == ("name: [", "ada", 1)


def test_a_text_with_mistakes_is_not_published_but_may_be_a_draft(service: Service) -> None:
    broken = "steps:\n  - step: a\n    needs: [b]\n    shell: echo\n"

    draft = service.catalogue.put_draft("a", broken)
    with pytest.raises(LanguageError):
        service.catalogue.publish_draft("a")
    changed = service.catalogue.put_draft("a", HELLO, note="now right", expected=draft.revision)
    with pytest.raises(RevisionMismatch):
        service.catalogue.put_draft("a", broken, expected=draft.revision)
    with pytest.raises(RevisionMismatch):
        service.catalogue.put_draft("a", broken)
    with pytest.raises(RevisionMismatch):
        service.catalogue.publish_draft("a", expected=draft.revision)
    done = service.catalogue.publish_draft("a", expected=changed.revision)

    assert (done.workflow.version, done.workflow.note) == (1, "now right")
    assert service.catalogue.workflow("a").text == HELLO
    with pytest.raises(UnknownWorkflow):
        service.catalogue.draft("a")


@pytest.mark.parametrize("name", ["", "a b", "../a", "a/b", "-a", "ü", "a" * 101])
def test_a_name_that_cannot_stand_in_an_address_is_refused(service: Service, name: str) -> None:
    with pytest.raises(InputInvalid):
        service.catalogue.publish(name, HELLO)


def test_an_unknown_workflow_or_version_is_said(service: Service) -> None:
    with pytest.raises(UnknownWorkflow, match="no workflow 'hello' is published"):
        service.catalogue.load("hello")
    service.catalogue.publish("hello", HELLO)

    with pytest.raises(UnknownWorkflow) as near:
        service.catalogue.workflow("helo")
    with pytest.raises(UnknownWorkflow) as number:
        service.catalogue.workflow("hello", 7)

    assert near.value.hint == "did you mean 'hello'?"
    assert number.value.message == "'hello' has no version 7"


class Overtaken:
    """Schedules of a publisher that another one overtakes between its version and its schedules."""

    def __init__(self, schedules: Any, overtake: Callable[[], object]) -> None:
        self._schedules = schedules
        self._waiting = [overtake]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schedules, name)

    def take_over(self, *words: Any) -> Any:
        if self._waiting:
            self._waiting.pop()()
        return self._schedules.take_over(*words)


def test_of_two_publishers_at_once_the_schedules_of_the_newest_text_are_in_force(service: Service) -> None:
    first, second = (f"schedules: {{{name}: {{every: 2h}}}}\n{HELLO}" for name in ("old", "new"))
    overtaken = Overtaken(service.schedules, lambda: service.catalogue.publish("hello", second))
    slow = Catalogue(service.reader, "bob", "", service.now, lambda: overtaken)

    slow.publish("hello", first)

    assert service.catalogue.workflow("hello").text == second
    assert [one.name for one in service.schedules.all()] == ["hello.new"]
