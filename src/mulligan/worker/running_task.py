"""What the executor knows of a task that it has taken."""

from __future__ import annotations

import msgspec

from mulligan.core.model.artifacts import Artifact
from mulligan.core.model.reports import Report
from mulligan.ports import Lease
from mulligan.worker.folders import ScratchFiles
from mulligan.worker.logs.redacted_logs import RedactedLogs
from mulligan.worker.outputs.code_files import Code
from mulligan.worker.outputs.output_storage import FileToStore


class RunningTask(msgspec.Struct):
    """A task that was taken and whose end was not reported yet."""

    lease: Lease
    # The same with all values resolved: secrets in it go to nothing but the task.
    resolved: Lease
    scratch: ScratchFiles
    # It asks for nothing but a call of its function: see `plain_tasks`.
    is_plain: bool = False
    # For code that may know secrets: the tasks that may share its process, see `Secrets.scope`. "" for others.
    scope: str = ""
    # The child that runs it, or 0 if it has its own process, whose key is the token.
    child: int = 0
    # The report to send when everything that the step started is dead.
    pending_report: Report | None = None
    # When to name its logs if it still runs then; None while it is queued, and once they are named.
    name_logs_at: float | None = None
    has_named_logs: bool = False
    # Its files were removed while it ran: what it writes is lost.
    has_lost_files: bool = False
    # When to check the size of its logs; None until they are named.
    check_logs_at: float | None = None
    # The pipes it logs into if it may know a secret; then its logs are named from the start.
    pipes: RedactedLogs | None = None
    # Whether a value of it may refer to an artifact.
    has_references: bool = True
    # The files of the artifacts that its arguments refer to, by name; and those that were created only for this task.
    artifact_files: dict[str, str] = {}
    spooled_files: list[str] = []
    # Of these, the files of objects, and what is uploaded to a bucket when it has ended.
    object_files: dict[str, str] = {}
    uploads: list[tuple[Artifact, str]] = []
    # A child has written its large values to its scratch files.
    is_prepared: bool = False
    # Started directly, without the shell that it was written for.
    is_direct: bool = False
    # For a python step with requirements: what a process is looking for, then the interpreter of its environment.
    awaited_environment: tuple[str, tuple[str, ...]] | None = None
    environment: str | None = None
    environment_searches: int = 0
    # What is wrong with our program that should have run it; "" if it has begun.
    broken_program: str = ""
    # Why a requested link to its logs could not be made; "" if there is no problem.
    log_warning: str = ""
    # The files that the step keeps, once it has ended; and whether they were searched for secrets.
    kept_files: list[FileToStore] = []
    are_files_searched: bool = False
    # Whether it may have written any of the files beside its logs: False if somebody has looked since it ended.
    may_have_files: bool = True
    # Whether it has reported progress; and what was read last, as the step wrote it.
    has_progress: bool = False
    progress: bytes = b""
    # The tag by which later runs find its result; "" if they must not.
    fingerprint: str = ""
    # The code of its function, if that counts.
    code: Code | None = None
    # The hashes of the files that it reads, before it started: by path, "" for a missing file.
    input_hashes: dict[str, str] = {}

    @property
    def code_changed_at(self) -> float:
        """When the code of its function changed last, if that counts."""
        return 0.0 if self.code is None else self.code.changed_at
