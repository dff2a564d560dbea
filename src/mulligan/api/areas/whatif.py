"""What a changed workflow would have made of recorded runs, over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.analysis.whatif.results import WhatIf
from mulligan.api.areas.catalogue import WorkflowText
from mulligan.api.areas.run_filters import moment_of
from mulligan.api.http.routing import Call, Routes
from mulligan.service.authoring.whatif import WhatIfSelection

ROUTES = Routes()

RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
# What one request may look at.
RUNS_MAX, SECONDS_MAX = 2_000, 20.0


class WhatIfBody(WorkflowText, frozen=True):
    """The changed text, and the runs to try it on.

    `name`: whose runs, by default those of the name in the text. `since`: a time, or how long ago (30d). `step`: only
    runs in which an attempt of it failed. Another `seed` draws other estimates.
    """

    name: str = ""
    since: str = ""
    step: str = ""
    runs: Annotated[tuple[RunId, ...], msgspec.Meta(max_length=100)] = ()
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0


@ROUTES.add("POST", "workflows:whatif", "read", is_change=False, is_slow=True)
def try_text(call: Call, body: WhatIfBody) -> WhatIf:
    """Try a changed workflow on the runs that are recorded: what would be otherwise. Nothing is stored or run."""
    selection = WhatIfSelection(
        workflow=body.name,
        since=moment_of(body.since),
        run_ids=body.runs,
        step=body.step,
        seed=body.seed,
        runs_max=RUNS_MAX,
        seconds_max=SECONDS_MAX,
    )
    return call.service.workflows.whatif_of_text(body.text, selection, file=body.file, format=body.format)
