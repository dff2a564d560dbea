"""Workflows of the catalogue: publishing, versions, drafts, and texts that are only checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from mulligan.api.http.entity_tags import entity_tag, expected_revision, with_revision
from mulligan.api.http.paging import Limit
from mulligan.api.http.routing import Answer, Body, Call, Query, Routes
from mulligan.errors import InputInvalid
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.catalogue.catalogue import (
    CONTENT_BYTES_MAX,
    Draft,
    Proposal,
    ProposedDraft,
    Publication,
    Published,
    PublishedWorkflow,
    WorkflowList,
)
from mulligan.service.server.catalogue.drawn_texts import DrawnText
from mulligan.service.server.catalogue.text_edits import AddedEdge, AddedRule, AddedStep, StepEdit

ROUTES = Routes()

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


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
    """A text to be published, and why.

    With `bundle`, the digest of a manifest, the version is what the manifest names, and the text is what people read.
    """

    note: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    bundle: str = ""


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


class Kept(msgspec.Struct, frozen=True):
    sha256: str
    is_kept: bool


@ROUTES.add("GET", "workflows", "read", answer=WorkflowsPage)
def list_workflows(call: Call, query: WorkflowsQuery) -> WorkflowList:
    """List the newest version of each published workflow, by name."""
    return call.service.catalogue.workflows(after=query.after, limit=query.limit)


@ROUTES.add("GET", "workflows/{name}", "read", answer=PublishedWorkflow)
def show_workflow(call: Call, name: str, query: VersionQuery) -> Answer:
    """One version of a workflow with its text, the newest by default."""
    found = call.service.catalogue.workflow(name, query.version)
    return Answer(found, headers=entity_tag(found.version))


@ROUTES.add("PUT", "workflows/{name}", "write", answer=Published, problems=(409,))
def publish_workflow(call: Call, name: str, query: DryRunQuery, body: PublishedText) -> Publication:
    """Publish a text as the next version. The same text again is the same version. Python files are refused."""
    return call.service.catalogue.publish(name, **asdict(body), dry_run=query.dry_run)


@ROUTES.add(
    "PUT",
    "contents/{sha256}",
    "write",
    body=bytes,
    body_bytes_max=CONTENT_BYTES_MAX,
    is_upload=True,
    problems=(413,),
)
def put_content(call: Call, sha256: str) -> Kept:
    """Keep the content of a file that is going to be published, or of a manifest, by its SHA-256."""
    call.service.catalogue.put_content(sha256, Path(call.body.path).read_bytes())
    return Kept(sha256, is_kept=True)


@ROUTES.add("GET", "workflows/{name}/versions", "read", answer=WorkflowsPage)
def list_versions(call: Call, name: str, query: VersionsQuery) -> WorkflowList:
    """List the versions of a workflow, the newest first."""
    return call.service.catalogue.versions(name, before=query.before, limit=query.limit)


@ROUTES.add("GET", "workflows/{name}/draft", "read", answer=Draft)
def show_draft(call: Call, name: str) -> Answer:
    """The draft of a workflow; its revision is the ETag."""
    return with_revision(call.service.catalogue.draft(name))


@ROUTES.add("PUT", "workflows/{name}/draft", "write", answer=Draft, problems=(412,))
def put_draft(call: Call, name: str, body: DraftText) -> Answer:
    """Write a draft. If-Match has the revision that it replaces, or * for any; without it there must be none."""
    expected = expected_revision(call.headers, without=0)
    return with_revision(call.service.catalogue.put_draft(name, **asdict(body), expected=expected))


@ROUTES.add("POST", "workflows/{name}:propose", "propose", answer=ProposedDraft, problems=(409,))
def propose_draft(call: Call, name: str, body: ProposedText) -> Proposal:
    """Write a draft that passes every check, and say what it would change. A draft of somebody else stays."""
    return call.service.catalogue.propose(name, **asdict(body))


@ROUTES.add("DELETE", "workflows/{name}/draft", "write", problems=(412,))
def delete_draft(call: Call, name: str) -> Deleted:
    """Throw a draft away."""
    expected = expected_revision(call.headers, without=None)
    call.service.catalogue.delete_draft(name, expected=expected)
    return Deleted(name, is_deleted=True)


@ROUTES.add("POST", "workflows/{name}:publish", "write", answer=Published, problems=(409, 412))
def publish_draft(call: Call, name: str, body: PublishDraft) -> Publication:
    """Publish the draft as the next version, and remove it."""
    expected = expected_revision(call.headers, without=None)
    return call.service.catalogue.publish_draft(name, **asdict(body), expected=expected)


@ROUTES.add("GET", "drafts", "read")
def list_drafts(call: Call) -> DraftsPage:
    """List the drafts, by name."""
    return DraftsPage(call.service.catalogue.drafts())


@ROUTES.add("GET", "workflows:schema", "read", media="application/schema+json")
def show_schema(call: Call) -> Answer:
    """The JSON Schema of workflow files, for editors."""
    text = call.service.workflows.schema_text().encode()
    tag = {"ETag": f'"{hashlib.sha256(text).hexdigest()[:16]}"', "Cache-Control": "private, max-age=3600"}
    return Answer(text, headers=tag, media="application/schema+json")


@ROUTES.add("POST", "workflows:validate", "read", answer=Examined, is_change=False, is_slow=True)
def validate_text(call: Call, body: CheckedText) -> Any:
    """Check the text of a workflow file, and draw it. Nothing is stored, nothing is run, no file is read."""
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


@ROUTES.add("POST", "workflows:convert", "read", answer=ConvertedText, is_change=False, is_slow=True)
def convert_text(call: Call, body: WorkflowText) -> Any:
    """The text of another system's file as one of ours."""
    found = call.service.catalogue.convert(body.text, file=body.file or "workflow.yaml", format=body.format)
    return {"text": found.text, "origin": found.origin, "warnings": to_json(found.warnings)}


@ROUTES.add("POST", "workflows:edit", "read", answer=EditedText, is_change=False, is_slow=True)
def edit_text(call: Call, body: EditBody) -> Any:
    """Change or add a step or an edge in a text and leave everything else as it is written. Nothing is stored."""
    if not body.step and (body.set or body.remove):
        raise InputInvalid("'set' and 'remove' need 'step'", hint="name the step to change", field="step")
    changed = StepEdit(body.step, body.set, body.remove) if body.step else None
    edits = [one for one in (changed, body.add_step, body.add_edge, body.add_rule) if one is not None]
    if not edits:
        raise InputInvalid("nothing is to be edited", hint="send 'step', 'add_step', 'add_edge' or 'add_rule'")
    found = call.service.catalogue.edit(body.text, *edits, file=body.file or "workflow.yaml")
    return {"text": found.text, "line": found.line, "validation": to_json(found.validation)}
