"""A server with something on every page, and hostile text wherever text can be; and the addresses of all pages."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.browser.conftest import HOSTILE, HOSTILE_TEXTS, Site

# What a terminal obeys: colours that never end, a link, a title, moves of the cursor, and bytes of no meaning.
TERMINAL = (
    "\x1b[31m<b>red</b>\x1b[1;4m\x1b]8;;javascript:window.hit(20)\x07a link\x1b]8;;\x07"
    "\x1b]0;<script>window.hit(21)</script>\x07\x1b[999;999H\x1b[2J\x07\x00\r<i>over</i>\x1b"
)
# A label takes one line that can be printed.
LABELS = {f"note{number}": text for number, text in enumerate(HOSTILE_TEXTS) if text.isprintable()}
ONE_LINE = " ".join(LABELS.values())
# The runs by what they show, in the order in which `furnish` starts them on an empty store.
HOSTILE_RUN, OTHER_RUN, PARKED_RUN, RUNNING_RUN, HELD_RUN = 1, 2, 3, 4, 5

SAYS = """
import json, os, sys
import mulligan

def main(text, number):
    print(text)
    print(text, file=sys.stderr)
    mulligan.log(text, field=text)
    mulligan.progress(1, 2, text)
    with open(f"kept-{number}", "w") as file:
        file.write(text)
    mulligan.artifact(f"kept-{number}", name=text.replace("/", "|")[:120])
    return {"text": text, text[:200]: [text, {"deep": text}], "rows": [{"name": text, "n": 1}, {"name": "b", "n": 2}]}
"""
FAILS = """
import json, os, sys

def main(text):
    print(text)
    print(text, file=sys.stderr)
    raise ValueError(text)
"""
WRITES_ERROR = 'printf "%s" "$REPORT" > "$MULLIGAN_ERROR"; printf "%s\\n" "$TEXT" >&2; exit 3'


def hostile_workflow() -> dict[str, Any]:
    """Fails, and says hostile things in every way that a step has, its handler and its recovery script too."""
    report = json.dumps({"code": "QUOTA", "message": HOSTILE, "details": {"why": HOSTILE}, "retryable": True})
    return {
        "name": "hostile",
        "description": HOSTILE.replace("${", "$"),
        "inputs": {
            "text": {"type": "string", "default": "", "description": HOSTILE.replace("${", "$")},
            "number": {"type": "integer", "default": 1},
        },
        "data": {"note": ""},
        "steps": [
            {"step": "says", "python": SAYS, "args": {"text": "${inputs.text}", "number": "${inputs.number}"}},
            {
                "step": "sets",
                "env": {"TEXT": "${inputs.text}"},
                "shell": 'mulligan data set note "$TEXT"',
            },
            {
                "step": "refuses",
                "needs": ["says"],
                "python": FAILS,
                "args": {"text": "${inputs.text}"},
                "retry": {"max_retries": 1, "delay": "0s", "recovery_script": 'printf "%s" "$TEXT" >&2; exit 1'},
                "env": {"TEXT": "${inputs.text}"},
                "on_failure": {"shell": 'printf "%s" "$TEXT" >&2; exit 9', "env": {"TEXT": "${inputs.text}"}},
                "next": {"to": "repair", "on": "failure"},
            },
            {
                "step": "repair",
                "env": {"TEXT": "${failure.message}", "REPORT": report.replace("${", "$")},
                "shell": WRITES_ERROR,
            },
            {
                "step": "each",
                "needs": ["says"],
                "map": {
                    "over": "${[steps.says.output, steps.says.output.text, inputs.text]}",
                    "on_item_failure": "collect",
                },
                "do": [{"shell": 'printf "%s\\n" "$TEXT" >&2; exit 1', "env": {"TEXT": "${inputs.text}"}}],
            },
            {"step": "late", "needs": ["refuses"], "shell": "true"},
        ],
        "outputs": {"text": "${inputs.text}", "all": "${steps.says.output}"},
    }


def parked_workflow() -> dict[str, Any]:
    """Waits for a person twice: with a failure, and with a question."""
    return {
        "name": "asks",
        "inputs": {"text": {"type": "string"}},
        "steps": [
            {
                "step": "load",
                "env": {"TEXT": "${inputs.text}"},
                "shell": 'printf "%s\\n" "$TEXT" >&2; exit 74',
                "retry": {"rules": [{"exit_codes": [1], "max_retries": 2}]},
                "triage": True,
            },
            {"step": "ship", "approve": {"message": "${inputs.text}"}},
        ],
    }


RUNNING = {"name": "running", "steps": [{"step": "wait", "shell": "echo begun; exec sleep 600"}]}
HELD = {
    "name": "held",
    "breakers": {"mainframe": {"failures": 1, "reset": "1h"}},
    "steps": [{"step": "call", "shell": "exit 1", "breaker": "mainframe"}],
}


def furnish(site: Site) -> None:
    """Fill a server: every page has something to show, and all texts are hostile."""
    said = HOSTILE + TERMINAL.replace("\x00", "")
    for name, workflow in (
        ("hostile", hostile_workflow()),
        ("asks", parked_workflow()),
        ("running", RUNNING),
        ("held", HELD),
    ):
        text = json.dumps(workflow, indent=1)
        site.ask("PUT", f"workflows/{name}", {"text": text, "note": HOSTILE, "labels": LABELS})
    again = json.dumps(hostile_workflow(), indent=1) + "\n# " + HOSTILE.replace("\u2028", "") + "\n"
    site.ask("PUT", "workflows/hostile", {"text": again, "note": HOSTILE})
    draft = {"text": again + "# draft\n", "file": "hostile.yaml", "note": HOSTILE}
    site.ask("PUT", "workflows/hostile/draft", draft, **{"If-None-Match": "*"})

    started = [
        site.start_run("hostile", labels=LABELS, text=said, number=1),
        site.start_run("hostile", labels=LABELS, text=HOSTILE, number=2),
        site.start_run("asks", labels=LABELS, text=said),
        site.start_run("running"),
        site.start_run("held"),
    ]
    assert started == [HOSTILE_RUN, OTHER_RUN, PARKED_RUN, RUNNING_RUN, HELD_RUN]
    site.settle(*(one for one in started if one != RUNNING_RUN))
    decision = {"run_id": PARKED_RUN, "step": "load", "verdict": "retry", "reason": HOSTILE}
    site.ask("POST", "decisions", {"decisions": [decision]})
    site.settle(PARKED_RUN)
    site.ask("POST", f"runs/{RUNNING_RUN}:pause", {"reason": HOSTILE})

    schedule = {"workflow": "hostile", "labels": LABELS, "inputs": {"text": HOSTILE.replace("${", "$${")}}
    site.ask("PUT", "schedules/nightly", {**schedule, "cron": "30 2 * * *", "timezone": "Asia/Tokyo"})
    site.ask("PUT", "schedules/often", {**schedule, "every": "1h"})
    site.ask("POST", "schedules/often:pause", {"reason": HOSTILE})
    site.ask("PUT", "hooks", {"rules": [{"on": ["failed"], "to": ["ops"]}]})
    site.ask("POST", "tokens", {"user": ONE_LINE[:100], "scopes": ["read"], "note": ONE_LINE})


class Shown(NamedTuple):
    """A page: its address, what stands on it as soon as it is complete, and whether it shows a hostile text."""

    path: str
    part: str = "main h1"
    is_hostile: bool = True


BAD, BAD_LABEL = quote(HOSTILE, safe=""), quote(LABELS["note0"], safe="")
# Pages of the dashboard, by a name for the list of tests.
PAGES = {
    "home": Shown("/", "#failing"),
    "runs": Shown("/runs", "tbody tr"),
    "runs-filtered": Shown(f"/runs?text=hostile&status=failed&label=note0%3D{BAD_LABEL}"),
    "run-overview": Shown(f"/runs/{HOSTILE_RUN}", ".gantt-row"),
    "run-graph": Shown(f"/runs/{HOSTILE_RUN}?tab=graph", "svg.page-graph"),
    "run-grid": Shown(f"/runs/{HOSTILE_RUN}?tab=grid", "tbody tr"),
    "run-events": Shown(f"/runs/{HOSTILE_RUN}?tab=events", ".feed li"),
    "run-replay": Shown(f"/runs/{HOSTILE_RUN}?tab=replay", "#replay-sentence"),
    "run-data": Shown(f"/runs/{HOSTILE_RUN}?tab=data", "#files"),
    "run-running": Shown(f"/runs/{RUNNING_RUN}", ".gantt-row"),
    "compare": Shown(f"/compare?a={HOSTILE_RUN}&b={OTHER_RUN}"),
    "compare-one": Shown(f"/compare?a={HOSTILE_RUN}"),
    "step": Shown(f"/runs/{HOSTILE_RUN}/steps/refuses", ".line-text"),
    "step-completed": Shown(f"/runs/{HOSTILE_RUN}/steps/says", ".line-text"),
    "step-running": Shown(f"/runs/{RUNNING_RUN}/steps/wait", ".line-text", is_hostile=False),
    "map": Shown(f"/runs/{HOSTILE_RUN}/steps/each", ".item-row"),
    "item": Shown(f"/runs/{HOSTILE_RUN}/steps/each/items/0", ".line-text"),
    "log": Shown(f"/runs/{HOSTILE_RUN}/steps/says?stream=stdout#L1", ".line-text"),
    "inbox": Shown("/inbox", ".entries li"),
    "inbox-approval": Shown(f"/inbox?run={PARKED_RUN}&step=ship", ".entries li"),
    "workflows": Shown("/workflows", "tbody tr", is_hostile=False),
    "workflow": Shown("/workflows/hostile"),
    "workflow-text": Shown("/workflows/hostile?tab=text"),
    "coverage": Shown("/workflows/hostile/coverage", ".heat", is_hostile=False),
    "coverage-story": Shown(
        "/workflows/hostile/coverage?step=refuses&failure=WORKER_LOST#story", ".story", is_hostile=False
    ),
    "versions": Shown("/workflows/hostile?tab=versions", ".diff"),
    "run-form": Shown("/workflows/hostile?tab=run", "form"),
    "editor": Shown("/workflows/hostile/edit", "#graph [data-step]", is_hostile=False),
    "whatif": Shown("/workflows/hostile/whatif", ".sentence", is_hostile=False),
    "new": Shown("/workflows/new", "#graph .node", is_hostile=False),
    "schedules": Shown("/schedules", "tbody tr", is_hostile=False),
    "schedule": Shown("/schedules/nightly"),
    "schedule-paused": Shown("/schedules/often"),
    "schedule-form": Shown("/schedules/nightly/edit", "#preview tbody tr"),
    "schedule-new": Shown("/schedules/new", is_hostile=False),
    "recovery": Shown("/recovery", is_hostile=False),
    "suggestions": Shown("/recovery/suggestions", is_hostile=False),
    "usage": Shown("/usage", is_hostile=False),
    "usage-workflow": Shown("/usage?workflow=hostile", is_hostile=False),
    "usage-run": Shown(f"/usage?run={HOSTILE_RUN}", is_hostile=False),
    "workers": Shown("/workers", is_hostile=False),
    "doctor": Shown("/workers/doctor", is_hostile=False),
    "audit": Shown("/audit", "tbody tr"),
    "tokens": Shown("/tokens", "tbody tr"),
    "notices": Shown("/notices", is_hostile=False),
}
# Pages without the navigation and the live stream: errors, and the report, which is a file of its own.
PLAIN_PAGES = {
    "no-run": Shown("/runs/999", is_hostile=False),
    "no-step": Shown(f"/runs/{HOSTILE_RUN}/steps/{BAD}"),
    "no-workflow": Shown(f"/workflows/{BAD}"),
    "no-page": Shown(f"/{BAD}", is_hostile=False),
    "bad-filter": Shown(f"/runs?status={BAD}"),
    "bad-name": Shown(f"/runs?{BAD}=1"),
    "report": Shown(f"/api/v1/runs/{HOSTILE_RUN}/report", ".timeline"),
}
