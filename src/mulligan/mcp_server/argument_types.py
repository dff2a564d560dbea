"""Arguments that several tools have, each with the words that a model reads."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

PageSize = Annotated[int, msgspec.Meta(ge=1, le=200, description="How many entries at most.")]
Cursor = Annotated[str, msgspec.Meta(description="`next` of the page before; leave it out for the first page.")]
RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1, description="The number of the run.")]
StepName = Annotated[
    str, msgspec.Meta(min_length=1, description="The step, or an item of it such as build[3] or build[west].")
]
WorkflowName = Annotated[str, msgspec.Meta(description="The name of a published workflow.")]
Version = Annotated[int, msgspec.Meta(ge=1, lt=2**31, description="Its version; the newest by default.")]
Text = Annotated[str, msgspec.Meta(description="The text of a workflow file.")]
File = Annotated[str, msgspec.Meta(description="A workflow file on this machine; not over HTTP, send its text there.")]
Inputs = Annotated[dict[str, Any], msgspec.Meta(description="Inputs by name.")]
Reason = Annotated[str, msgspec.Meta(description="Why, in a sentence that a person can check; it is recorded.")]
DryRun = Annotated[bool, msgspec.Meta(description="Only say what would follow, and change nothing.")]
