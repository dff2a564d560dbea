"""A Torc file that was read: its jobs, files, user data and dependencies."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.run_data import BYTES_MAX, VALUE_BYTES_MAX, value_problem
from mulligan.formats.names import Names
from mulligan.formats.torc.commands import (
    GETS_DATA,
    SETS_DATA,
    fill_in_references,
    note_references,
    refuse_missing_values,
)
from mulligan.formats.torc.jobs import DataItem, link_jobs, read_files, read_jobs, read_user_data
from mulligan.formats.torc.matching import NameIndex
from mulligan.formats.torc.parameters import Expansion
from mulligan.formats.translation import Translation
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node
from mulligan.language.text.suggestions import quote_list


class TorcFile:
    """A Torc file that was read, and the parts of the workflow made from it.

    `workflow` and `actions` add to it: to `defaults`, to the keys and needs of jobs, and steps after those of the jobs.
    """

    def __init__(self, form: Fields, translation: Translation) -> None:
        self.form = form
        self.translation = translation
        self.source = translation.source
        self.names = Names.of_steps()
        expansion = Expansion(_mapping(form, "parameters"), translation)
        files, user_data = read_files(form, expansion), read_user_data(form, expansion)
        jobs = read_jobs(form, self.names, expansion)
        self.files = NameIndex("file", files, self.source, is_complete="file" not in expansion.unnamed)
        self.user_data = NameIndex(
            "user data", user_data, self.source, is_complete="user data" not in expansion.unnamed
        )
        self.jobs = NameIndex("job", jobs, self.source, is_complete="job" not in expansion.unnamed)
        self.defaults: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        # Steps after those of the jobs, so that the steps of jobs have Torc's numbers.
        self.after: list[Mapping] = []
        self.end: Mapping | None = None
        # Actions that schedule nodes of a cluster.
        self.kept_actions: list[Fields] = []
        # User data that commands may get or set while a run is going on, by its name there.
        self.data: dict[str, DataItem] = {}
        # User data that is too large for that, as written.
        self.kept_user_data: list[Node] = []

    def link(self) -> None:
        """Resolve the names in jobs: other jobs, files, user data."""
        for job in self.jobs.by_name.values():
            note_references(job, self.files, self.user_data)
        link_jobs(self.jobs, self.files, self.user_data)
        for job in self.jobs.by_name.values():
            fill_in_references(job, self.files, self.user_data)
        refuse_missing_values(self.jobs, self.source)
        if self.user_data.by_name:
            self._warn_of_unset_user_data()
            self._place_user_data()

    def _warn_of_unset_user_data(self) -> None:
        """Warn once of a job that seems not to set the user data that it writes: there is no server to send it to."""
        for item in self.user_data.by_name.values():
            for job in item.writers:
                if not SETS_DATA.search(job.texts.get("command", "")):
                    message = f"job '{job.name}' writes user data '{item.name}', and its command does not set it"
                    hint = f"let it run: mulligan data set {item.key} VALUE"
                    at = job.form.node.get("output_user_data") or job.at("output_user_data_regexes")
                    self.translation.warn("user_data", message, at, hint=hint)
                    return

    def _place_user_data(self) -> None:
        """Make user data part of the run, unless it is only filled into commands."""
        found = [each for each in self.user_data.by_name.values() if each.writers or not each.is_in_command]
        size = 0
        for item in found:
            size += len(item.text.encode())
            if value_problem(item.value) or size > BYTES_MAX:
                self.kept_user_data.append(item.node)
                message = f"the user data '{item.name}' is too large: kept but not used"
                hint = f"a value has at most {VALUE_BYTES_MAX >> 10} KiB, all together {BYTES_MAX >> 10} KiB"
                self.translation.warn("user_data", message, item.name_node, hint=f"{hint}; write a file instead")
            elif item.writers or not item.is_empty:
                # Null until a job sets it, as in Torc.
                self.data[item.key] = item
        unread = [item for item in found if not item.writers and item.key in self.data]
        if unread and not any(GETS_DATA.search(job.texts.get("command", "")) for job in self.jobs.by_name.values()):
            names = quote_list([item.name for item in unread], "and")
            message = f"no command refers to user data {names}: there is no server to get it from"
            hint = f"write ${{user_data.input.{unread[0].name}}} in a command, or: mulligan data get {unread[0].key}"
            self.translation.warn("user_data", message, unread[0].name_node, hint=hint)


def _mapping(form: Fields, key: str) -> Mapping | None:
    node = form.at(key) if form.get(key) is not None else None
    return node if isinstance(node, Mapping) else None
