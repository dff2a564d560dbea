"""How runs look in a notebook."""

from __future__ import annotations

from mulligan.client.notebook_html import render_run, render_story, render_workflow
from mulligan.service import Service, Workflow

# A graph with more nodes is left out: it could not be read. One of more steps is not even laid out.
NODES_MAX, DRAWN_STEPS_MAX = 60, 5_000


def run_html(service: Service, run_id: int) -> str:
    """A run as it is now: status, steps, graph."""
    workflow, statuses = service.drawn_run(run_id)
    graph, note = _draw(workflow, statuses)
    return render_run(service.overview(run_id, with_attempts=True), service.failure_outcomes(run_id), graph, note=note)


def story_html(service: Service, run_id: int, step: str = "") -> str:
    """The story of a run or of a step."""
    return render_story(service.story(run_id, step, is_tree=True), service.waits(run_id, step))


def workflow_html(workflow: Workflow) -> str:
    """A workflow: its graph."""
    graph, note = _draw(workflow, None)
    return render_workflow(workflow.name, len(workflow.steps), graph, note=note)


def _draw(workflow: Workflow, statuses: dict[str, str] | None) -> tuple[str, str]:
    """The graph, or why there is none."""
    count = len(workflow.steps)
    graph = "" if count > DRAWN_STEPS_MAX else Service.draw_for_notebook(workflow, statuses, nodes_max=NODES_MAX)
    return graph, "" if graph else f"the graph of {count:,} steps is too large to be drawn here"
