"""A Torc file that was read: its jobs, files, user data and dependencies."""

from __future__ import annotations

from typing import Any

from mulligan.formats.names import Names
from mulligan.formats.torc.commands import fill_in_references, refuse_missing_values
from mulligan.formats.torc.jobs import link_jobs, read_files, read_jobs, read_user_data
from mulligan.formats.torc.matching import NameIndex
from mulligan.formats.torc.parameters import Expansion
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import quote_list


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
        # Actions for a cluster, as written.
        self.kept_actions: list[Node] = []
        # User data that no command gets, as written.
        self.kept_user_data: list[Node] = []

    def link(self) -> None:
        """Resolve the names in jobs: other jobs, files, user data."""
        for job in self.jobs.by_name.values():
            fill_in_references(job, self.files, self.user_data)
        link_jobs(self.jobs, self.files, self.user_data)
        refuse_missing_values(self.jobs, self.source)
        self._warn_of_written_user_data()
        self._keep_user_data()

    def _warn_of_written_user_data(self) -> None:
        written = next((item for item in self.user_data.by_name.values() if item.writers), None)
        if written is not None:
            job = written.writers[0]
            message = f"'{job.name}' cannot write user data here: '{written.name}' only makes other jobs wait for it"
            hint = "let the job write a file that the other jobs read"
            at = job.form.node.get("output_user_data") or job.at("output_user_data_regexes")
            self.translation.warn("user_data", message, at, hint=hint)

    def _keep_user_data(self) -> None:
        """Keep user data that no command refers to: in Torc a job may get it from the server."""
        found = [each for each in self.user_data.by_name.values() if not each.is_in_command and not each.writers]
        self.kept_user_data += [item.node for item in found]
        if found:
            names = quote_list([item.name for item in found], "and")
            hint = f"write ${{user_data.input.{found[0].name}}} in a command to insert its value"
            message = f"no command refers to user data {names}: kept but not used"
            self.translation.warn("user_data", message, found[0].name_node, hint=hint)


def _mapping(form: Fields, key: str) -> Mapping | None:
    node = form.at(key) if form.get(key) is not None else None
    return node if isinstance(node, Mapping) else None
