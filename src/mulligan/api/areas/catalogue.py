"""Workflows of the catalogue: publishing, versions, drafts, and texts that are only checked."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from mulligan.api.http.entity_tags import entity_tag, expected_revision
from mulligan.api.http.routing import Answer, Body, Call, Query, Route
from mulligan.errors import InputInvalid
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.catalogue.catalogue import Draft, PublishedWorkflow
from mulligan.service.server.catalogue.drawn_texts import DrawnText
from mulligan.service.server.catalogue.text_additions import NewEdge, NewRule, NewStep
from mulligan.service.server.catalogue.text_edits import StepEdit

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class WorkflowsQuery(Query, frozen=True):
    """`after`: the name behind which the page begins, as `next` of the page before says."""

    after: str = ""
    limit: Limit = 100


class VersionsQuery(Query, frozen=True):
    """`before`: the version below which the page begins, as `next` of the page before says."""

    before: Number | None = None
    limit: Limit = 50


class VersionQuery(Query, frozen=True):
    """Which version; the newest by default."""

    version: Number | None = None


class DryRunQuery(Query, frozen=True):
    """With `dry_run=true` nothing is written; the answer says what would be."""

    dry_run: bool = False


class WorkflowText(Body, frozen=True):
    """The text of a workflow file. `file` is its name: the ending says in which syntax it is written."""

    text: str
    file: str = ""
    # The system whose file it is; recognized by default.
    format: str | None = None


class CheckedText(WorkflowText, frozen=True):
    """A text to check. With `graph` the answer has its picture, and the line of each step."""

    graph: bool = False


class PublishedText(WorkflowText, frozen=True):
    """A text to be published, and why."""

    note: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class DraftText(Body, frozen=True):
    """A text that may have mistakes."""

    text: str
    file: str = ""
    note: str = ""


class ProposedText(DraftText, frozen=True):
    """A text that somebody else may publish, and why it should be."""

    dry_run: bool = False


class PublishDraft(Body, frozen=True):
    """Why the draft is published; the note of the draft by default."""

    note: str = ""
    dry_run: bool = False


class AddedStep(Body, frozen=True):
    """A step to add: its name, its other keys, and the step behind which it stands; the last one by default."""

    step: str
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    after: str = ""


class AddedEdge(Body, frozen=True):
    """An arrow to add. `needs`: the target waits for the source. `next`: the source leads to the target."""

    source: str
    target: str
    kind: Literal["next", "needs"] = "next"
    on: Literal["success", "failure", "always"] = "success"
    # What the source does once a remediation has succeeded.
    then: Literal["rerun", "continue"] | None = None
    # Only failures with one of these codes; only these exit codes, each a number or a range such as `10-19`.
    codes: tuple[str, ...] = ()
    exit_codes: tuple[int | str, ...] = ()


class AddedRule(Body, frozen=True):
    """A retry rule to add to a step, for any failure or for some codes or exit codes. Rules that are there stay."""

    step: str
    max_retries: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    # Such as `10s`.
    delay: str = ""
    codes: tuple[str, ...] = ()
    exit_codes: tuple[int | str, ...] = ()


class EditBody(Body, frozen=True):
    """A text of ours, and what to add to it; or a step in it, with new values of its keys and keys to take away."""

    text: str
    step: str = ""
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    remove: tuple[str, ...] = ()
    add_step: AddedStep | None = None
    # After the step was added.
    add_edge: AddedEdge | None = None
    add_rule: AddedRule | None = None
    file: str = ""


class WorkflowsPage(msgspec.Struct, frozen=True):
    workflows: list[PublishedWorkflow]
    next: str | None


class Published(PublishedWorkflow, frozen=True, kw_only=True):
    """A version, and what came of publishing it."""

    is_new: bool
    warnings: list[dict[str, Any]]
    # The schedules of the text, which are in force now, and those that it had and has no more.
    schedules: list[str]
    removed_schedules: list[str]
    dry_run: bool


class ProposedDraft(msgspec.Struct, frozen=True):
    """What a draft would change, line by line, and its revision; 0 if it was not written."""

    name: str
    changes_version: int
    would_be_version: int
    diff: str
    warnings: list[dict[str, Any]]
    dry_run: bool
    revision: int


class Checked(msgspec.Struct, frozen=True):
    """What a check found."""

    ok: bool
    file: str
    format: str | None
    name: str | None
    steps: int | None
    problems: list[dict[str, Any]]
    warnings: list[dict[str, Any]]


class Examined(Checked, frozen=True):
    """What a check found. `graph`: its picture, if it was asked for and the text is right."""

    graph: DrawnText | None = None


class DraftsPage(msgspec.Struct, frozen=True):
    drafts: list[Draft]


class ConvertedText(msgspec.Struct, frozen=True):
    """The text of a file of ours. `origin` is the system whose file it was; "" if it was ours already."""

    text: str
    origin: str
    warnings: list[dict[str, Any]]


class EditedText(msgspec.Struct, frozen=True):
    """The text after the edit, the first line that changed (0 for none), and what a check of it finds."""

    text: str
    line: int
    validation: Checked


class Deleted(msgspec.Struct, frozen=True):
    name: str
    is_deleted: bool


def list_workflows(call: Call) -> Any:
    return to_json(call.service.catalogue.workflows(after=call.query.after, limit=call.query.limit))


def show_workflow(call: Call) -> Answer:
    found = call.service.catalogue.workflow(call.path["name"], call.query.version)
    return Answer(to_json(found), headers=entity_tag(found.version))


def publish_workflow(call: Call) -> Any:
    body: PublishedText = call.body
    done = call.service.catalogue.publish(
        call.path["name"],
        body.text,
        file=body.file,
        format=body.format,
        note=body.note,
        labels=body.labels,
        dry_run=call.query.dry_run,
    )
    return to_json(done)


def list_versions(call: Call) -> Any:
    return to_json(call.service.catalogue.versions(call.path["name"], before=call.query.before, limit=call.query.limit))


def show_draft(call: Call) -> Answer:
    return _draft(call.service.catalogue.draft(call.path["name"]))


def put_draft(call: Call) -> Answer:
    body: DraftText = call.body
    expected = expected_revision(call.headers, without=0)
    name = call.path["name"]
    return _draft(call.service.catalogue.put_draft(name, body.text, file=body.file, note=body.note, expected=expected))


def propose_draft(call: Call) -> Any:
    body: ProposedText = call.body
    found = call.service.catalogue.propose(
        call.path["name"], body.text, file=body.file, note=body.note, dry_run=body.dry_run
    )
    return to_json(found)


def delete_draft(call: Call) -> Any:
    expected = expected_revision(call.headers, without=None)
    call.service.catalogue.delete_draft(call.path["name"], expected=expected)
    return {"name": call.path["name"], "is_deleted": True}


def publish_draft(call: Call) -> Any:
    body: PublishDraft = call.body
    expected = expected_revision(call.headers, without=None)
    return to_json(
        call.service.catalogue.publish_draft(call.path["name"], note=body.note, expected=expected, dry_run=body.dry_run)
    )


def list_drafts(call: Call) -> Any:
    return {"drafts": to_json(call.service.catalogue.drafts())}


def validate_text(call: Call) -> Any:
    body: CheckedText = call.body
    file = body.file or "workflow.yaml"
    if body.graph:
        found = call.service.catalogue.examine(body.text, file=file, format=body.format)
        checked, graph = found.validation, found.graph
    else:
        checked, graph = call.service.catalogue.validate(body.text, file=file, format=body.format), None
    # An editor marks the words.
    lengths = {
        name: [{**to_json(one), "length": one.length} for one in getattr(checked, name)]
        for name in ("problems", "warnings")
    }
    return {**to_json(checked), **lengths, "graph": graph}


def show_schema(call: Call) -> Answer:
    text = call.service.workflows.schema_text().encode()
    tag = {"ETag": f'"{hashlib.sha256(text).hexdigest()[:16]}"', "Cache-Control": "private, max-age=3600"}
    return Answer(text, headers=tag, media="application/schema+json")


def convert_text(call: Call) -> Any:
    body: WorkflowText = call.body
    found = call.service.catalogue.convert(body.text, file=body.file or "workflow.yaml", format=body.format)
    return {"text": found.text, "origin": found.origin, "warnings": to_json(found.warnings)}


def edit_text(call: Call) -> Any:
    body: EditBody = call.body
    edits: list[StepEdit | NewStep | NewEdge | NewRule] = []
    if body.step:
        edits.append(StepEdit(body.step, body.set, body.remove))
    elif body.set or body.remove:
        raise InputInvalid("'set' and 'remove' need 'step'", hint="name the step to change", field="step")
    if body.add_step is not None:
        edits.append(NewStep(**msgspec.structs.asdict(body.add_step)))
    if body.add_edge is not None:
        edits.append(NewEdge(**msgspec.structs.asdict(body.add_edge)))
    if body.add_rule is not None:
        edits.append(NewRule(**msgspec.structs.asdict(body.add_rule)))
    if not edits:
        raise InputInvalid("nothing is to be edited", hint="send 'step', 'add_step', 'add_edge' or 'add_rule'")
    found = call.service.catalogue.edit(body.text, *edits, file=body.file or "workflow.yaml")
    return {"text": found.text, "line": found.line, "validation": to_json(found.validation)}


def _draft(found: Draft) -> Answer:
    return Answer(to_json(found), headers=entity_tag(found.revision))


ROUTES = (
    Route(
        "GET",
        "workflows",
        list_workflows,
        "read",
        "List the newest version of each published workflow, by name.",
        query=WorkflowsQuery,
        answer=WorkflowsPage,
    ),
    Route(
        "GET",
        "workflows/{name}",
        show_workflow,
        "read",
        "One version of a workflow with its text, the newest by default.",
        query=VersionQuery,
        answer=PublishedWorkflow,
    ),
    Route(
        "PUT",
        "workflows/{name}",
        publish_workflow,
        "write",
        "Publish a text as the next version. The same text again is the same version. Python files are refused.",
        query=DryRunQuery,
        body=PublishedText,
        answer=Published,
        problems=(409,),
    ),
    Route(
        "GET",
        "workflows/{name}/versions",
        list_versions,
        "read",
        "List the versions of a workflow, the newest first.",
        query=VersionsQuery,
        answer=WorkflowsPage,
    ),
    Route(
        "GET",
        "workflows/{name}/draft",
        show_draft,
        "read",
        "The draft of a workflow; its revision is the ETag.",
        answer=Draft,
    ),
    Route(
        "PUT",
        "workflows/{name}/draft",
        put_draft,
        "write",
        "Write a draft. If-Match has the revision that it replaces, or * for any; without it there must be none.",
        body=DraftText,
        answer=Draft,
        problems=(412,),
    ),
    Route(
        "POST",
        "workflows/{name}:propose",
        propose_draft,
        "propose",
        "Write a draft that passes every check, and say what it would change. A draft of somebody else stays.",
        body=ProposedText,
        answer=ProposedDraft,
        problems=(409,),
    ),
    Route(
        "DELETE",
        "workflows/{name}/draft",
        delete_draft,
        "write",
        "Throw a draft away.",
        answer=Deleted,
        problems=(412,),
    ),
    Route(
        "POST",
        "workflows/{name}:publish",
        publish_draft,
        "write",
        "Publish the draft as the next version, and remove it.",
        body=PublishDraft,
        answer=Published,
        problems=(409, 412),
    ),
    Route("GET", "drafts", list_drafts, "read", "List the drafts, by name.", answer=DraftsPage),
    Route(
        "GET",
        "workflows:schema",
        show_schema,
        "read",
        "The JSON Schema of workflow files, for editors.",
        media="application/schema+json",
    ),
    Route(
        "POST",
        "workflows:validate",
        validate_text,
        "read",
        "Check the text of a workflow file, and draw it. Nothing is stored, nothing is run, no file is read.",
        body=CheckedText,
        answer=Examined,
        is_change=False,
        is_slow=True,
    ),
    Route(
        "POST",
        "workflows:convert",
        convert_text,
        "read",
        "The text of another system's file as one of ours.",
        body=WorkflowText,
        answer=ConvertedText,
        is_change=False,
        is_slow=True,
    ),
    Route(
        "POST",
        "workflows:edit",
        edit_text,
        "read",
        "Change or add a step or an edge in a text and leave everything else as it is written. Nothing is stored.",
        body=EditBody,
        answer=EditedText,
        is_change=False,
        is_slow=True,
    ),
)
