"""A file of Torc's that was read: its jobs, files and user data, and who waits for whom."""

from __future__ import annotations

from typing import Any

from mulligan.formats.names import Names
from mulligan.formats.torc.commands import add_named, refuse_valueless
from mulligan.formats.torc.expansion import Expansion
from mulligan.formats.torc.jobs import link, read_jobs
from mulligan.formats.torc.matching import Known
from mulligan.formats.torc.things import read_files, read_user_data
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import quote_list


class Torc:
    """A file of Torc's that was read, and the parts of ours that grow from it.

    `environment` and `actions` add to it: to `defaults`, to the entries and needs of jobs, and steps of their own
    after those of the jobs.
    """

    def __init__(self, form: Fields, translation: Translation) -> None:
        self.form = form
        self.translation = translation
        self.source = translation.source
        self.names = Names.of_steps()
        expansion = Expansion(_mapping(form, "parameters"), translation)
        files, user_data = read_files(form, expansion), read_user_data(form, expansion)
        jobs = read_jobs(form, self.names, expansion)
        self.files = Known("file", files, self.source, is_whole="file" not in expansion.broken)
        self.user_data = Known("user data", user_data, self.source, is_whole="user data" not in expansion.broken)
        self.jobs = Known("job", jobs, self.source, is_whole="job" not in expansion.broken)
        self.defaults: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        # Steps after those of the jobs, which so have Torc's numbers.
        self.after: list[Mapping] = []
        self.end: Mapping | None = None
        # Those of a cluster, as they were written.
        self.kept_actions: list[Node] = []
        # User data whose value nobody gets here, likewise.
        self.kept_user_data: list[Node] = []

    def link(self) -> None:
        """Find what the jobs name: each other, files, user data."""
        for job in self.jobs.things.values():
            add_named(job, self.files, self.user_data)
        link(self.jobs, self.files, self.user_data)
        refuse_valueless(self.jobs, self.source)
        self._warn_of_written_user_data()
        self._keep_user_data()

    def _warn_of_written_user_data(self) -> None:
        written = next((thing for thing in self.user_data.things.values() if thing.writers), None)
        if written is not None:
            job = written.writers[0]
            message = f"nobody can write user data here: that '{job.name}' writes '{written.name}' says only who waits"
            hint = "let the job write a file, and those that wait read it"
            at = job.form.node.get("output_user_data") or job.at("output_user_data_regexes")
            self.translation.warn("user_data", message, at, hint=hint)

    def _keep_user_data(self) -> None:
        """Keep what no command has in it: a job of Torc's may ask the server for its value, and here is none."""
        found = [each for each in self.user_data.things.values() if not each.is_in_command and not each.writers]
        self.kept_user_data += [thing.node for thing in found]
        if found:
            verb = "is" if len(found) == 1 else "are"
            names = quote_list([thing.name for thing in found], "and")
            hint = f"write ${{user_data.input.{found[0].name}}} where its value belongs"
            message = f"user data {names} {verb} in no command: kept, and not used"
            self.translation.warn("user_data", message, found[0].name_node, hint=hint)


def _mapping(form: Fields, key: str) -> Mapping | None:
    node = form.at(key) if form.get(key) is not None else None
    return node if isinstance(node, Mapping) else None
