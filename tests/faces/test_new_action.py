"""An action that nobody here knew: a package of one module, and every face treats it as one of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

PLUGIN = """\
from mulligan import ActionPlugin, StepError

announce = ActionPlugin(
    "MODULE:run",
    about="tells the team something",
    keys={"text": "what is told", "channel": "where (default: general)"},
    required=["text"],
    text_key="text",
    traits={
        "noun": "an announcement",
        "effect": "posts a message",
        "waits": True,
        "has_exit_code": False,
        "has_memory": False,
        "usual_codes": ["CONNECTION", "HTTP_4XX"],
        "never": {"EXIT_NONZERO": "an announcement has no exit code"},
    },
)


def run(text, channel="general"):
    if channel == "closed":
        raise StepError("HTTP_4XX", f"nobody may write to {channel}")
    return {"told": text, "channel": channel}
"""
FLOW = """\
name: release
inputs: {channel: {type: string, default: general}}
steps:
  - {step: build, shell: echo built}
  - step: tell
    needs: [build]
    announce: {text: "${steps.build.output}", channel: "${inputs.channel}"}
    retry: {rules: [{codes: [CONNECTION], max_retries: 2}, {exit_codes: [3], max_retries: 1}]}
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = PLUGIN) -> None:
    """Put the package on the path of this process and of those that it starts, as a package manager would."""
    # No other test of this process has imported one of that name.
    module = f"announce_{folder.name}".replace("-", "_")
    (folder / f"{module}.py").write_text(text.replace("MODULE", module))
    info = folder / "team_announce-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: team-announce\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mulligan.actions]\nannounce = {module}:announce\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_it_is_validated_drawn_covered_faked_run_shown_and_tried_on_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install(tmp_path, monkeypatch)
    flow = workflow(FLOW)

    assert mulligan("validate", flow).code == 0
    assert '["tell<br/>announce · retry"]' in mulligan("graph", flow).out
    covered = mulligan("coverage", flow, "--json").json
    faked = mulligan("rehearse", flow, "--fake", "tell=HTTP_4XX", "--json").json
    ran = mulligan("run", flow, "--json").json
    failed = mulligan("run", flow, "-i", "channel=closed", "--json").json
    shown = mulligan("show", ran["run_id"])
    tried = mulligan("whatif", flow)

    assert len(PLUGIN.splitlines()) <= 60
    failures = {cell["failure"] for cell in covered["cells"] if cell["step"] == "tell" and cell["verdict"]}
    assert failures == {"CONNECTION", "HTTP_4XX", "WORKER_LOST", "cancel", "kill"}
    found = {one["code"]: one["message"] for one in covered["findings"]}
    assert found["retry_repeats_side_effect"] == "step 'tell' posts a message, and a retry does it again"
    assert found["rule_never_applies"].endswith("never applies: an announcement has no exit code")
    assert faked["steps"]["tell"]["failure"]["code"] == "HTTP_4XX"
    assert ran["steps"]["tell"]["output"] == {"told": "built", "channel": "general"}
    assert failed["steps"]["tell"]["failure"]["message"] == "nobody may write to closed"
    assert "\ntell   completed" in shown.out
    assert "2 runs of 'release': all would have gone as they did" in tried.out


@pytest.mark.parametrize(
    ("trait", "problem"),
    [
        (
            '"asks_person": True',
            "gives the trait 'asks_person'; an action of a package may give cpus, effect",
        ),
        ('"cpus": "many"', "gives a trait of a wrong type: Expected `float`, got `str` - at `$.cpus`"),
    ],
)
def test_traits_that_a_package_may_not_give_are_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trait: str, problem: str
):
    install(tmp_path, monkeypatch, PLUGIN.replace('"waits": True', trait))

    said = mulligan("validate", workflow(FLOW))

    assert said.code == 2
    assert f"error[language.plugin]: flow.yaml:7:5: the action 'announce' of team-announce {problem}" in said.err
