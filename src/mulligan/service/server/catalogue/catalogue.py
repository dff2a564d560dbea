"""Publishing workflows, and finding what was published.

A version is a text that never changes; publishing the same text again gives the same version. A draft is a text on its
way: it may have mistakes, it has a revision, and nothing runs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from mulligan.core.model.schedule import Schedule
from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.core.model.workflow import END, Step, Workflow, encode
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.errors import InputInvalid, LanguageError, NotFound, Problem, Refused, RevisionMismatch, StoreRefused
from mulligan.formats import Converted
from mulligan.language.published import references_in
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports.bundles import (
    BUNDLE_DIGEST,
    FILE_BYTES_MAX,
    Bundle,
    BundleFile,
    check_digest,
    decode_bundle,
    digest_of,
)
from mulligan.ports.server_records import Document, ServerRecords, WorkflowVersion
from mulligan.service.authoring.workflow_files import Validation
from mulligan.service.runs.changes.preflight import VERSION_LABEL as VERSION_LABEL
from mulligan.service.runs.changes.preflight import check_labels
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.catalogue.drawn_texts import ExaminedText, examine_and_draw
from mulligan.service.server.catalogue.text_diff import diff_as_text, diff_texts
from mulligan.service.server.catalogue.text_edits import Edit, EditedText, edit_text
from mulligan.service.server.catalogue.texts import (
    WorkflowText,
    check_name,
    convert_text,
    format_of,
    is_name,
    name_from,
    published_reference,
    published_text,
    read_sent_definition,
    read_text,
    validate_text,
)
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.publishing.parts import Publishable, SentBundle, make_bundle
from mulligan.service.server.schedules.forms import check_sent_schedule

DRAFT = "draft"
# How many drafts one user may have in a project, and how large they may be together: lists of drafts have their texts.
DRAFTS_MAX, DRAFTS_BYTES_MAX = 200, 8 << 20
# How many parsed versions are remembered.
PARSED_MAX = 16
NOTE_CHARS_MAX = 1000
# How many published workflows a text may call.
REFERENCES_MAX = 100
# The largest file of a version.
CONTENT_BYTES_MAX = FILE_BYTES_MAX
# Names that are asked for at once, for suggestions.
_NAMES_MAX = 1000


class UnknownWorkflow(NotFound):
    """No workflow of this name is published, or it has no such version or draft."""

    code = "workflow.unknown"


class PublishedWorkflow(msgspec.Struct, frozen=True):
    """One version of a published workflow."""

    name: str
    version: int
    digest: str
    # The system whose file it is; our own is called `mulligan`.
    format: str
    published_at: datetime
    published_by: str
    note: str = ""
    labels: Mapping[str, str] = {}
    # The name of a file from which it is read like this: its ending says in which syntax it is written.
    file: str = ""
    # None in lists.
    text: str | None = None
    # What it was published with; empty for a text alone, and in lists.
    files: tuple[BundleFile, ...] = ()


class WorkflowList(msgspec.Struct, frozen=True):
    """A page of published workflows or of versions. `next` is what the next page begins behind."""

    workflows: tuple[PublishedWorkflow, ...]
    next: str | None = None


class Publication(msgspec.Struct, frozen=True):
    """What came of publishing a text."""

    workflow: PublishedWorkflow
    # False: the newest version has this text already.
    is_new: bool
    warnings: tuple[Problem, ...] = ()
    # The schedules of the file, which are in force now, and those that the file had and has no more.
    schedules: tuple[str, ...] = ()
    removed_schedules: tuple[str, ...] = ()
    dry_run: bool = False


class Published(PublishedWorkflow, frozen=True, kw_only=True):
    """A version, and what came of publishing it."""

    is_new: bool
    warnings: tuple[dict[str, Any], ...]
    # The schedules of the text, which are in force now, and those that it had and has no more.
    schedules: tuple[str, ...]
    removed_schedules: tuple[str, ...]
    dry_run: bool


class Draft(msgspec.Struct, frozen=True):
    """A text on its way, perhaps with mistakes."""

    name: str
    text: str
    revision: int
    updated_at: datetime
    updated_by: str
    file: str = ""
    note: str = ""


class Proposal(msgspec.Struct, frozen=True):
    """A draft that somebody proposes, and what it changes. Nothing runs it until somebody else publishes it."""

    name: str
    # The version that it would change, and the one that it would be; 0 for a workflow that nobody has published.
    changes_version: int
    would_be_version: int
    # What differs, line by line: `-` was, `+` would be. "" if nothing does.
    diff: str
    warnings: tuple[Problem, ...]
    dry_run: bool
    # Of the draft; 0 if it was not written.
    revision: int = 0


class ProposedDraft(msgspec.Struct, frozen=True):
    """What a draft would change, line by line, and its revision; 0 if it was not written."""

    name: str
    changes_version: int
    would_be_version: int
    diff: str
    warnings: tuple[dict[str, Any], ...]
    dry_run: bool
    revision: int


@lru_cache(PARSED_MAX)
def _parse(given: WorkflowText, name: str, source: str) -> Workflow:
    """The workflow of a version. A server starts the same few again and again, and a version never changes."""
    workflow, _ = read_text(given)
    return msgspec.structs.replace(workflow, name=name, source=source)


class _DraftData(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a draft."""

    text: str
    file: str = ""
    note: str = ""


class FileSchedules(Protocol):
    """Who takes over the schedules that stand in a text."""

    def check_of_file(self, name: str, schedule: Schedule, workflow: Workflow) -> None: ...

    def refuse_taken(self, workflow: str, names: Iterable[str]) -> None: ...

    def take_over(self, workflow: str, schedules: Mapping[str, Schedule]) -> tuple[list[str], list[str]]: ...


class Catalogue:
    """The published workflows of one project, in the name of `by`."""

    def __init__(
        self,
        reader: RunReader,
        by: str,
        project: str,
        now: Callable[[], datetime],
        schedules: Callable[[], FileSchedules],
    ) -> None:
        self._reader = reader
        self._schedules = schedules
        self._by = by
        self._project = project
        self._now = now

    # -- looking -----------------------------------------------------------------------------------------------------

    def workflows(self, *, after: str = "", limit: int = 100) -> WorkflowList:
        """The newest version of each workflow, by name."""
        if not self._reader.home.is_there:
            return WorkflowList(())
        found = self._records.newest_versions(self._project, after=after, limit=limit + 1)
        return _page(found, limit, lambda one: one.name)

    def versions(self, name: str, *, before: int | None = None, limit: int = 50) -> WorkflowList:
        """The versions of a workflow, the newest first."""
        self._version(name, None)
        found = self._records.versions(self._project, name, before=before, limit=limit + 1)
        return _page(found, limit, lambda one: str(one.number))

    def workflow(self, name: str, version: int | None = None) -> PublishedWorkflow:
        """One version with its text and the files that it was published with, the newest by default."""
        found = self._version(name, version)
        files = self._bundle(found).files if _bundle_of(found) else ()
        return msgspec.structs.replace(_shown(found), files=files)

    def text_of(self, name: str, version: int | None = None) -> WorkflowText:
        """How one version is read, the newest by default."""
        return self._text_of(self._version(name, version))

    def load(self, name: str, version: int | None = None) -> Workflow:
        """The workflow of one version, the newest by default, under the name by which it was published."""
        return self._load(self._version(name, version))

    def prepare(
        self,
        name: str,
        version: int | None = None,
        inputs: Mapping[str, Any] = MappingProxyType({}),
        labels: Mapping[str, str] = MappingProxyType({}),
        *,
        cwd: Path | None = None,
    ) -> Prepared:
        """A run of a published workflow, ready to be started: its inputs and labels are checked.

        Its steps work in `cwd`, by default in the folder that each worker has for runs of a server; those of a version
        with files where its worker has unpacked them. The label `version` says which version it is.
        """
        found = self._version(name, version)
        # Whoever starts it cannot say that it is of another version.
        all_labels = {**found.labels, **labels, VERSION_LABEL: str(found.number)}
        return prepare(self._load(found), dict(inputs), cwd or Path(WORKER_FOLDER), labels=all_labels)

    # -- texts that nobody publishes ---------------------------------------------------------------------------------

    def validate(self, text: str, *, file: str = "workflow.yaml", format: str | None = None) -> Validation:
        """Check a text. Nothing is run, and no file is read."""
        return validate_text(self._given(text, file, format))

    def examine(self, text: str, *, file: str = "workflow.yaml", format: str | None = None) -> ExaminedText:
        """Check a text and draw it, for somebody who is writing it. Nothing is run, and no file is read."""
        return examine_and_draw(self._given(text, file, format))

    @staticmethod
    def convert(text: str, *, file: str = "workflow.yaml", format: str | None = None) -> Converted:
        """The text of another system's file as one of ours."""
        return convert_text(WorkflowText(text, file, format))

    @staticmethod
    def edit(text: str, *edits: Edit, file: str = "workflow.yaml") -> EditedText:
        """Change or add a step or an edge in a text of ours, and leave everything else as it is written."""
        return edit_text(WorkflowText(text, file), *edits)

    @staticmethod
    def name_for(workflow: str, file: str) -> str:
        """The name under which a file is published if no other is given: that of the workflow.

        If it has none that the catalogue could use, it is that of the file without its endings.
        """
        try:
            return name_from(workflow)
        except InputInvalid:
            return name_from(file.partition(".")[0])

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(
        self,
        name: str,
        text: str,
        *,
        file: str = "",
        format: str | None = None,
        note: str = "",
        labels: Mapping[str, str] = MappingProxyType({}),
        dry_run: bool = False,
        bundle: str = "",
    ) -> Publication:
        """Check a text and make it the newest version. `LanguageError` where it is refused; then nothing changes.

        With a `bundle`, the text is only shown: the version is the bundle with this digest, whose contents are there.
        """
        check_name(name)
        given = self._given(text, file or f"{name}.yaml", format)
        if not bundle:
            workflow, warnings = read_text(given)
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            return self._publish(name, given, workflow, digest, note, labels, warnings=warnings, dry_run=dry_run)
        digest, found = f"{BUNDLE_DIGEST}{check_digest(bundle)}", self._content(bundle)
        if found is None and dry_run:
            # Who asks what would be published has read it, and sends nothing.
            workflow = Workflow(name, (), Step(name=END))
            return self._publish(name, given, workflow, digest, note, labels, warnings=(), dry_run=True)
        if found is None:
            raise InputInvalid("the bundle is not in the store", hint="send its contents first")
        sent = decode_bundle(found, bundle)
        if missing := self.missing_contents(sent.digests):
            raise InputInvalid(
                f"{pluralize(len(missing), 'content')} of the bundle are not in the store", hint="send them first"
            )
        if not sent.shows(text):
            raise InputInvalid("the text is not that of the file that is published", hint="send its text as it is")
        workflow = read_sent_definition(WorkflowText("", given.file, definition=self._content(sent.definition) or b""))
        for one in workflow.schedules.values():
            check_sent_schedule(one)
        return self._publish(name, given, workflow, digest, note, sent.labels, warnings=(), dry_run=dry_run)

    def publish_files(
        self,
        found: Publishable,
        *,
        name: str = "",
        note: str = "",
        labels: Mapping[str, str] = MappingProxyType({}),
        dry_run: bool = False,
        is_bundle: bool = False,
    ) -> Publication:
        """Publish a workflow with the files that it needs. One that is a text alone is published as a text.

        `is_bundle`: publish that with a manifest, too, which has its labels and settings.
        """
        name = check_name(name) if name else self.name_for(found.workflow.name, found.file)
        about: dict[str, Any] = {"file": found.file, "note": note, "dry_run": dry_run}
        if found.is_text_alone and not is_bundle:
            try:
                return self.publish(name, found.text, format=found.format, labels=labels, **about)
            except LanguageError as refused:
                # A file of another system may name files that only its reader knows: they are in the definition.
                if all(one.code != "language.include" for one in refused.problems):
                    raise
        sent = make_bundle(found, check_labels(labels)) if dry_run else self.send_files(found, labels)
        done = self.publish(name, found.text, labels=labels, bundle=sent.digest, **about)
        return msgspec.structs.replace(
            done,
            workflow=msgspec.structs.replace(done.workflow, files=sent.bundle.files),
            warnings=found.warnings,
            schedules=done.schedules or tuple(sorted(f"{name}.{key}" for key in found.workflow.schedules)),
        )

    def send_files(self, found: Publishable, labels: Mapping[str, str]) -> SentBundle:
        """Put what a workflow needs into the store, so that it can be published. Nothing is published yet."""
        sent = make_bundle(found, check_labels(labels))
        for digest in self.missing_contents([*sent.contents]):
            self.put_content(digest, sent.contents[digest])
        return sent

    def put_content(self, digest: str, content: bytes) -> None:
        """Keep the content of a file that is going to be published. `InputInvalid` unless it has this SHA-256."""
        if digest_of(content) != check_digest(digest):
            raise InputInvalid("the content does not have this SHA-256", hint="send it again")
        self._records.put_content(self._project, content, self._now())

    def missing_contents(self, digests: Sequence[str]) -> list[str]:
        """Those of these contents that the store does not have."""
        return self._records.missing_contents(self._project, digests) if self._is_there else [*digests]

    def _publish(
        self,
        name: str,
        given: WorkflowText,
        workflow: Workflow,
        digest: str,
        note: str,
        labels: Mapping[str, str],
        *,
        warnings: Sequence[Problem],
        dry_run: bool,
    ) -> Publication:
        schedules = {key: msgspec.structs.replace(one, workflow=name) for key, one in workflow.schedules.items()}
        for key, one in schedules.items():
            try:
                self._schedules().check_of_file(f"{name}.{key}", one, workflow)
            except InputInvalid as error:
                raise InputInvalid(f"schedule '{key}': {error.message}", hint=error.hint) from None
        self._schedules().refuse_taken(name, schedules)
        version = WorkflowVersion(
            name=name,
            digest=digest,
            published_at=self._now(),
            published_by=self._by,
            text=given.text,
            format=format_of(workflow, given.file),
            note=_check_note(note),
            labels=check_labels({**workflow.labels, **labels}),
            project=self._project,
        )
        newest = self._records.version(self._project, name) if self._is_there else None
        is_new = newest is None or newest.digest != version.digest
        if dry_run:
            number = (newest.number if newest else 0) + is_new
            shown = _shown(msgspec.structs.replace(version, number=number) if is_new or newest is None else newest)
            planned = tuple(sorted(f"{name}.{key}" for key in schedules))
            return Publication(_without_text(shown), is_new, tuple(warnings), schedules=planned, dry_run=True)
        stored = self._records.publish(version)
        names, gone = self._schedules().take_over(name, schedules)
        self._follow_newer(name, stored)
        return Publication(
            _without_text(_shown(stored)),
            is_new,
            tuple(warnings),
            schedules=tuple(names),
            removed_schedules=tuple(gone),
        )

    def _follow_newer(self, name: str, published: WorkflowVersion) -> None:
        """Put the schedules of the newest text in force, if somebody published another one meanwhile.

        Of two that publish at once the earlier one may come later to the schedules, and its own would stay.
        """
        newest = self._version(name, None)
        while newest.number != published.number:
            published = newest
            schedules = self._load(newest).schedules
            renamed = {key: msgspec.structs.replace(one, workflow=name) for key, one in schedules.items()}
            self._schedules().take_over(name, renamed)
            newest = self._version(name, None)

    # -- drafts ------------------------------------------------------------------------------------------------------

    def draft(self, name: str) -> Draft:
        """The draft of a workflow. `UnknownWorkflow` if it has none."""
        found = self._records.document(self._project, DRAFT, name) if self._is_there and is_name(name) else None
        if found is None:
            raise UnknownWorkflow(f"'{name}' has no draft", workflow=name)
        return _draft(found)

    def drafts(self) -> list[Draft]:
        """All drafts, by name."""
        found = self._records.documents(DRAFT, self._project) if self._is_there else []
        return sorted(map(_draft, found), key=lambda one: one.name)

    def put_draft(self, name: str, text: str, *, file: str = "", note: str = "", expected: int | None = 0) -> Draft:
        """Write the draft. `RevisionMismatch` unless the stored one is at `expected`: 0 for none, None for any."""
        data = _DraftData(text, file, _check_note(note))
        document = Document(
            kind=DRAFT,
            name=check_name(name),
            data=msgspec.json.encode(data),
            updated_at=self._now(),
            updated_by=self._by,
            project=self._project,
        )
        self._refuse_too_many(document)
        return _draft(self._records.put_document(document, expected=expected))

    def _refuse_too_many(self, draft: Document) -> None:
        stored = self._records.documents(DRAFT, self._project) if self._is_there else []
        others = [one for one in stored if one.updated_by == draft.updated_by and one.name != draft.name]
        size = sum(len(one.data) for one in (*others, draft))
        if len(others) >= DRAFTS_MAX or size > DRAFTS_BYTES_MAX:
            raise Refused(
                f"'{draft.updated_by}' has {pluralize(len(others), 'other draft')}, and a user may have {DRAFTS_MAX} "
                f"with {format_size(DRAFTS_BYTES_MAX)} together",
                hint="publish some, or throw them away",
                workflow=draft.name,
            )

    def propose(self, name: str, text: str, *, file: str = "", note: str = "", dry_run: bool = False) -> Proposal:
        """Write a text that passes every check as the draft, and say what it would change.

        `LanguageError` where it would not be published. `Refused` where somebody else has a draft: theirs stays.
        """
        planned = self.publish(name, text, file=file, note=note, dry_run=True)
        newest = self._records.version(self._project, name) if self._is_there else None
        stored = self._records.document(self._project, DRAFT, name) if self._is_there else None
        if stored is not None and stored.updated_by != self._by:
            raise Refused(
                f"'{name}' has a draft of {stored.updated_by or 'somebody else'}, which stays as it is",
                hint="ask its author for the change, or propose it when that draft is published or deleted",
                workflow=name,
            )
        revision = 0
        if not dry_run:
            expected = stored.revision if stored is not None else 0
            revision = self.put_draft(name, text, file=file, note=note, expected=expected).revision
        return Proposal(
            name=name,
            changes_version=newest.number if newest is not None else 0,
            would_be_version=planned.workflow.version,
            diff=diff_as_text(diff_texts(newest.text if newest is not None else "", text)),
            warnings=planned.warnings,
            dry_run=dry_run,
            revision=revision,
        )

    def delete_draft(self, name: str, *, expected: int | None = None) -> None:
        """Throw the draft away. `UnknownWorkflow` if there is none."""
        is_possible = self._is_there and is_name(name)
        if not (is_possible and self._records.delete_document(self._project, DRAFT, name, expected=expected)):
            raise UnknownWorkflow(f"'{name}' has no draft", workflow=name)

    def publish_draft(
        self, name: str, *, note: str = "", expected: int | None = None, dry_run: bool = False
    ) -> Publication:
        """Publish the draft, and remove it unless it was changed meanwhile."""
        draft = self.draft(name)
        if expected is not None and draft.revision != expected:
            message = f"the draft of '{name}' is at revision {draft.revision}, not {expected}"
            raise RevisionMismatch(message, hint="read it again, then publish it", revision=draft.revision)
        done = self.publish(name, draft.text, file=draft.file, note=note or draft.note, dry_run=dry_run)
        if not dry_run:
            current = self._records.document(self._project, DRAFT, name)
            if current is not None and current.revision == draft.revision:
                self._records.delete_document(self._project, DRAFT, name, expected=draft.revision)
        return done

    # -- behind it ---------------------------------------------------------------------------------------------------

    @property
    def _is_there(self) -> bool:
        return self._reader.home.is_there

    @property
    def _records(self) -> ServerRecords:
        return self._reader.store.server_records

    def _version(self, name: str, number: int | None) -> WorkflowVersion:
        found = self._records.version(self._project, name, number) if self._is_there and is_name(name) else None
        if found is None:
            raise self._unknown(name, number)
        return found

    def _load(self, found: WorkflowVersion) -> Workflow:
        return _parse(self._text_of(found), found.name, _bundle_of(found))

    def _text_of(self, found: WorkflowVersion) -> WorkflowText:
        given = published_text(found.name, found.text, found.format)
        if not _bundle_of(found):
            return self._given(given.text, given.file, given.format)
        definition = self._content(self._bundle(found).definition)
        if definition is None:
            raise _not_there(found.name)
        return msgspec.structs.replace(given, definition=definition)

    def _given(self, text: str, file: str, format: str | None) -> WorkflowText:
        """A text, with the published workflows that it may call."""
        known: list[tuple[str, bytes]] = []
        for word in islice(references_in(text), REFERENCES_MAX) if "workflow" in text else ():
            if (reference := published_reference(word)) is not None and reference[1] is not None:
                with suppress(UnknownWorkflow):
                    known.append((word, encode(self.load(*reference))))
        return WorkflowText(text, file, format, tuple(known))

    def _bundle(self, found: WorkflowVersion) -> Bundle:
        manifest = self._content(_bundle_of(found))
        if manifest is None:
            raise _not_there(found.name)
        return decode_bundle(manifest, _bundle_of(found))

    def _content(self, digest: str) -> bytes | None:
        return self._records.content(self._project, digest) if self._is_there else None

    def _unknown(self, name: str, number: int | None = None) -> UnknownWorkflow:
        is_possible = number is not None and self._is_there and is_name(name)
        newest = self._records.version(self._project, name) if is_possible else None
        if newest is not None:
            hint = f"its newest version is {newest.number}; list them: mulligan workflows {name}"
            return UnknownWorkflow(f"'{name}' has no version {number}", hint=hint, workflow=name, version=number)
        known = [one.name for one in self.workflows(limit=_NAMES_MAX).workflows]
        hint = did_you_mean(name, known) or "list them: mulligan workflows"
        return UnknownWorkflow(f"no workflow '{name[:100]}' is published", hint=hint, workflow=name)


def _page(found: Sequence[WorkflowVersion], limit: int, position: Callable[[WorkflowVersion], str]) -> WorkflowList:
    shown = found[:limit]
    following = position(shown[-1]) if len(found) > limit and shown else None
    return WorkflowList(tuple(_without_text(_shown(one)) for one in shown), following)


def _shown(one: WorkflowVersion) -> PublishedWorkflow:
    return combine(
        PublishedWorkflow,
        one,
        version=one.number,
        format=one.format.partition(".")[0],
        labels=dict(one.labels),
        file=published_text(one.name, "", one.format).file,
    )


def _bundle_of(found: WorkflowVersion) -> str:
    """The digest of the bundle that a version is; "" for a text."""
    return found.digest.removeprefix(BUNDLE_DIGEST) if found.digest.startswith(BUNDLE_DIGEST) else ""


def refuse_files(found: PublishedWorkflow) -> None:
    """Refuse to edit the text of a version that is more than a text."""
    if found.files:
        raise InputInvalid(
            f"'{found.name}' is published with its files, and is not edited here",
            hint="change them in the project, and publish it again: mulligan publish, or mulligan deploy",
        )


def _not_there(name: str) -> StoreRefused:
    return StoreRefused(f"the files of '{name}' are not in the store", hint="publish it again")


def _without_text(one: PublishedWorkflow) -> PublishedWorkflow:
    return msgspec.structs.replace(one, text=None)


def _draft(document: Document) -> Draft:
    return combine(Draft, document, msgspec.json.decode(document.data, type=_DraftData))


def _check_note(note: str) -> str:
    if len(note) > NOTE_CHARS_MAX:
        raise InputInvalid(f"the note has {len(note):,} characters", hint=f"at most {NOTE_CHARS_MAX:,}")
    if "\0" in note:
        raise InputInvalid("the note contains a NUL character", hint="remove it")
    return note
