"""Where a store has its artifacts, if they are objects in buckets: one setting on which all its workers agree.

The store remembers the setting, so that a worker without one uses it too, and every place that was ever used, which is
what `gc` looks at. A reference names its place, so a change of the setting loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import is_object_place, run_id_of
from mulligan.errors import (
    InputInvalid,
    ObjectStoreFailed,
    RevisionMismatch,
    StoreLibraryMissing,
    StoreRefused,
    StoreUnavailable,
)
from mulligan.object_store.places import VARIABLE, checked_place, is_within
from mulligan.ports import ArtifactRecord, Store
from mulligan.ports.server_records import OBJECT_STORE_KIND, Document
from mulligan.worker.outputs.object_files import NO_OBJECTS, ObjectStorage

_NAME = "places"
# A folder below each place that is only of this store: run 17 is in many stores.
_FOLDER = "mulligan-"
_TRIES_MAX = 10
# A workflow may name any bucket, and gc looks at all of them.
PLACES_MAX = 100


class ObjectPlaces(msgspec.Struct, frozen=True):
    """What a store knows of them: its own folder, what the setting says ("": none), and all places in use."""

    folder: str
    setting: str = ""
    places: tuple[str, ...] = ()

    def place_in(self, setting: str) -> str:
        """Where artifacts of this store are, in what a setting names."""
        return f"{setting}/{self.folder}" if setting else ""

    def with_place(self, setting: str) -> ObjectPlaces:
        """The same with what a setting names among the places in use."""
        places = tuple(dict.fromkeys([*self.places, self.place_in(setting)]))
        if len(places) > max(PLACES_MAX, len(self.places)):
            raise StoreRefused(
                f"this store has artifacts in {len(self.places)} places, and '{setting}' would be another",
                hint="use one of them",
            )
        return msgspec.structs.replace(self, places=places)


def known_places(store: Store) -> ObjectPlaces | None:
    """What the store knows; None if it never had objects."""
    found = store.server_records.document("", OBJECT_STORE_KIND, _NAME)
    return None if found is None else msgspec.json.decode(found.data, type=ObjectPlaces)


def agree(store: Store, setting: str, refuse: Callable[[ObjectPlaces], None] = lambda known: None) -> None:
    """Make this the setting of the store. `refuse` may object to a change."""

    def changed(known: ObjectPlaces) -> ObjectPlaces:
        if known.setting not in ("", setting):
            refuse(known)
        return msgspec.structs.replace(known.with_place(setting), setting=setting)

    _changed(store, changed)


def _changed(store: Store, change: Callable[[ObjectPlaces], ObjectPlaces]) -> ObjectPlaces:
    for _ in range(_TRIES_MAX):
        found = store.server_records.document("", OBJECT_STORE_KIND, _NAME)
        known = (
            ObjectPlaces(f"{_FOLDER}{os.urandom(8).hex()}")
            if found is None
            else msgspec.json.decode(found.data, type=ObjectPlaces)
        )
        agreed = change(known)
        if agreed == known and found is not None:
            return known
        document = Document(OBJECT_STORE_KIND, _NAME, msgspec.json.encode(agreed), datetime.now(UTC))
        try:
            store.server_records.put_document(document, expected=0 if found is None else found.revision)
        except RevisionMismatch:
            continue
        return agreed
    raise StoreUnavailable("the places of artifacts are being changed by others")


def read_setting(environ: Mapping[str, str]) -> str:
    """What `$MULLIGAN_OBJECT_STORE` says; "" for nothing."""
    text = environ.get(VARIABLE, "")
    return checked_place(text) if text.strip() else ""


def object_storage(store: Store, environ: Mapping[str, str], *, is_remote: bool) -> ObjectStorage:
    """What a worker of this store needs to know. `InputInvalid` if other workers use another place."""
    setting = read_setting(environ)
    if is_remote:
        # The server says where, and it has what this worker cannot reach itself.
        if not setting:
            return NO_OBJECTS
        return ObjectStorage(
            lambda task: task.objects if is_within(task.objects, setting) else "",
            lambda place: is_within(place, setting),
        )
    if setting:
        agree(store, setting, lambda known: _refuse_beside_others(store, known, setting))
    return ObjectStorage(partial(place_of, store), lambda place: True)


def places_of(store: Store, tasks: Sequence[Task]) -> list[str]:
    """`place_of` of several tasks for workers elsewhere: "" for one whose place the store does not take."""
    known = known_places(store) if tasks else None
    if known is None and not any(VARIABLE in task.env for task in tasks):
        return [""] * len(tasks)
    found = []
    for task in tasks:
        try:
            found.append(place_of(store, task))
        except StoreRefused:
            found.append("")
    return found


def place_of(store: Store, task: Task) -> str:
    """Where the artifacts of a task go: where its workflow says, or the setting of the store; "" if into the store."""
    named = task.env.get(VARIABLE)
    known = known_places(store)
    if isinstance(named, str) and is_object_place(named):
        if known is None or known.place_in(named) not in known.places:
            # Known to `gc` before anything is there.
            known = _changed(store, lambda known: known.with_place(named))
        return known.place_in(named)
    return "" if known is None else known.place_in(known.setting)


def _refuse_beside_others(store: Store, known: ObjectPlaces, setting: str) -> None:
    others = [worker.name for worker in store.workers() if not worker.is_expired and worker.cpus]
    if others:
        raise InputInvalid(
            f"{VARIABLE} is '{setting}', and the workers of this store have their artifacts in '{known.setting}'",
            hint=f"set it to the same, or leave it out; to change it, end the workers first: {', '.join(others[:3])}",
        )


def object_records(store: Store, unread: dict[str, str]) -> dict[str, list[ArtifactRecord]]:
    """The objects of the store by place, as far as they are artifacts. `unread` gets the places that cannot be read."""
    known = known_places(store)
    found = {}
    for place in known.places if known is not None else ():
        # Few stores have objects.
        from mulligan.object_store.bucket import bucket_of

        try:
            listed = [ArtifactRecord(*one) for one in bucket_of(place).records() if run_id_of(one.name)]
        except (ObjectStoreFailed, StoreLibraryMissing) as error:
            unread[place] = error.message
        else:
            found[place] = sorted(listed, key=lambda one: one.name)
    return found


def remove_objects(place: str, names: Iterable[str]) -> None:
    """`StoreRefused` if the bucket does not allow it."""
    from mulligan.object_store.bucket import bucket_of

    try:
        bucket_of(place).remove(names)
    except ObjectStoreFailed as error:
        raise StoreRefused(error.message, hint="gc needs the permission to list and to delete objects") from error


def refuse_foreign_places(store: Store, places: Collection[str]) -> None:
    """`InputInvalid` for a place which is none of this store: a server reads what a reference names."""
    if not places:
        return
    known = known_places(store)
    if foreign := set(places) - set(known.places if known is not None else ()):
        raise InputInvalid(
            f"'{min(foreign)}' is no place of artifacts of this store", hint="a worker does not choose it"
        )
