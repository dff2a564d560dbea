"""`mulligan step`: one step, one attempt, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

FLOW = """\
name: release
inputs: {target: {type: string, default: staging}}
steps:
  - {step: build, shell: 'echo [1, 2]', capture: json}
  - step: deploy
    needs: [build]
    shell: |
      echo deploying ${steps.build.output} to ${inputs.target}
      echo attempt $MULLIGAN_ATTEMPT >&2
      test -e key
    retry: 3
    on_failure: touch handled
    triage: true
    next: [{to: repair, on: failure}]
  - {step: repair, shell: touch repaired}
  - step: check
    needs: [build]
    map: {over: "${steps.build.output}", as: one}
    do: [{shell: "echo ${one}", retry: 2, on_failure: "touch handled"}]
  - {step: gate, approve: 'go?', next: end}
end: {shell: touch ended}
"""


def untouched() -> bool:
    return not any(Path(name).exists() for name in ("handled", "repaired", "ended", ".mulligan"))


def test_one_step_runs_once_with_what_it_reads_given_by_hand():
    Path("key").touch()

    said = mulligan("step", workflow(FLOW), "deploy", "--result", "build=[7]", "-i", "target=prod")

    assert said == (0, "deploying [7] to prod\n", "attempt 1\nstep 'deploy' completed\n")
    assert untouched()


def test_what_a_step_gives_without_writing_it_is_shown():
    query = "{connection: 'sqlite://', query: select 1 as n}"

    said = mulligan("step", workflow(f"name: w\nsteps: [{{step: count, sql: {query}}}]"), "count")

    assert said == (0, '[\n  {\n    "n": 1\n  }\n]\n', "step 'count' completed\n")


def test_a_step_that_fails_is_not_retried_handled_parked_or_routed():
    said = mulligan("step", workflow(FLOW), "deploy")

    assert said == (1, "deploying  to staging\n", "attempt 1\nstep 'deploy' failed with EXIT_NONZERO 1: attempt 1\n")
    assert untouched()


def test_every_item_of_a_map_step_runs_once():
    said = mulligan("step", workflow(FLOW), "check", "--result", 'build=["a", "b"]')

    assert (said.code, sorted(said.out.split()), said.err) == (0, ["a", "b"], "step 'check' completed\n")


def test_as_json_it_is_a_run_of_that_step_and_of_what_it_reads():
    run = mulligan("step", workflow(FLOW), "deploy", "--json").json

    assert (run["status"], list(run["steps"])) == ("failed", ["build", "deploy"])
    assert (run["steps"]["build"]["attempts"], run["steps"]["deploy"]["attempts"]) == (0, 1)


def test_an_agent_is_told_what_the_steps_before_it_gave_as_it_is_given_by_hand(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_AGENT_CLAUDE", "grep -c -e 'the plan' -e 'the draft'")
    path = workflow("""\
        name: w
        steps:
          - {step: plan, shell: make plan}
          - {step: draft, shell: make draft, next: [review, {to: fix, on: failure}]}
          - {step: review, needs: [plan], agent: Review.}
          - {step: fix, agent: Fix.}
    """)

    told = mulligan("step", path, "review", "--result", 'plan="the plan"', "--result", 'draft="the draft"')
    told_nothing = mulligan("step", path, "fix", "--result", 'draft="the draft"')

    assert told == (0, "2\n", "step 'review' completed\n")
    assert (told_nothing.code, told_nothing.err) == (
        2,
        "error[step.unknown]: step 'fix' does not read the result of 'draft'\n  it reads no results\n",
    )


def test_in_a_home_that_is_named_it_is_kept():
    said = mulligan("step", workflow(FLOW), "build", "--home", "kept")

    assert said == (0, "[1, 2]\n", "step 'build' completed\nkept as run 1 in 'kept'\n")
    assert mulligan("logs", 1, "build", "--home", "kept").out == "[1, 2]\n"


@pytest.mark.parametrize("words", [("build",), ("deploy", "--handler")], ids=["step", "handler"])
def test_a_store_that_others_share_is_left_alone(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", "postgresql://nobody@127.0.0.1:1/nowhere")

    assert mulligan("step", workflow(FLOW), *words).code == 0


def test_a_step_that_asks_a_person_waits():
    said = mulligan("step", workflow(FLOW), "gate")

    assert said == (4, "", "step 'gate' running\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("biuld",),
            "error[step.unknown]: 'biuld' is not a step of workflow 'release'\n  did you mean 'build'?\n",
        ),
        (
            ("7",),
            "error[step.unknown]: '7' is not a step of workflow 'release'\n  list the steps: mulligan graph FILE\n",
        ),
        (
            ("deploy", "--result", "repair=1"),
            "error[step.unknown]: step 'deploy' does not read the result of 'repair'\n  it reads build\n",
        ),
        (
            ("deploy", "--result", "build=oops"),
            "error[usage]: 'build=oops' is not STEP=JSON\n  write it like build='[1, 2]'\n",
        ),
        (
            ("deploy", "-i", "size=3"),
            "error[input.invalid]: workflow 'release' has no input 'size'\n  it has 'target'\n",
        ),
    ],
    ids=["step", "number", "result", "json", "input"],
)
def test_a_step_that_makes_no_sense_is_refused_and_nothing_runs(words: tuple[str, ...], said: str):
    refused = mulligan("step", workflow(FLOW), *words)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == said
    assert untouched()


# -- its handler alone -----------------------------------------------------------------------------------------------

HANDLED = """\
name: handled
steps:
  - {step: build, shell: 'echo [1, 2]', capture: json}
  - step: deploy
    needs: [build]
    shell: touch ran
    retry: 3
    triage: true
    on_failure:
      strategy: fallback
      commands:
        - shell: echo ${error.code} ${error.exit_code} ${error.message} ${steps.build.output}
        - shell: echo try $MULLIGAN_ATTEMPT >&2; test -e once || { touch once; exit 4; }; echo kept
          retry: 2
    next: [{to: repair, on: failure}]
  - {step: repair, shell: touch repaired}
  - {step: again, shell: touch ran, on_failure: {shell: echo prepared, rerun: 2}}
  - {step: clean, shell: touch ran, on_failure: {shell: echo swept, strategy: cleanup}}
  - {step: bad, shell: touch ran, on_failure: [echo one, {shell: 'echo broken >&2; exit 9', on_failure: 'exit 8'}]}
  - {step: choose, shell: touch ran, on_failure: {strategy: custom, shell: 'echo "$CHOICE" > $MULLIGAN_OUTPUT'}}
  - {step: bare, shell: touch ran}
  - step: check
    map: {over: "${['a', 'b']}", as: pkg}
    do:
      - {shell: touch ran}
      - {shell: touch ran, on_failure: "echo fixed ${pkg} after ${error.code}"}
      - {shell: touch ran, on_failure: "echo other ${pkg}"}
  - {step: ask, shell: touch ran, on_failure: {approve: 'go on?'}}
end: {shell: touch ended}
"""


def tried(step: str, *words: object) -> tuple[int, str, str]:
    """What came of trying the handler of a step: the step itself has not run, and nothing behind it."""
    said = mulligan("step", workflow(HANDLED), step, "--handler", *words)
    assert not any(Path(name).exists() for name in ("ran", "repaired", "ended", ".mulligan"))
    return said


def test_a_handler_runs_as_if_the_step_had_just_failed_so():
    assert tried("deploy", "--error", '{"exit_code": 11, "message": "no route"}', "--result", "build=[7]") == (
        0,
        "EXIT_NONZERO 11 no route [7]\nkept\n",
        "-- 'deploy.on_failure@1.0', attempt 1\n"
        "-- 'deploy.on_failure@1.1', attempt 1\n"
        "try 1\n"
        "-- 'deploy.on_failure@1.1', attempt 2\n"
        "try 2\n"
        "step 'deploy' would be completed, recovered by its fallback handler, with output \"kept\"\n",
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        # Nothing said: a plain exit 1.
        (None, "EXIT_NONZERO 1 exit code 1"),
        ('{"signal": 9}', "SIGNALED 137 killed by signal 9"),
        ('{"code": "TIMEOUT"}', "TIMEOUT  TIMEOUT"),
        # The engine's own codes are believed here, and nowhere else.
        ('{"code": "WORKER_LOST", "message": "gone"}', "WORKER_LOST  gone"),
        # As `show --json` prints it: what the trial fills in is passed over.
        ('{"code": "OURS", "message": "x", "step": "other", "attempt": 7, "exit_code": null}', "OURS  x"),
    ],
    ids=["default", "signal", "timeout", "engine's", "pasted"],
)
def test_of_a_failure_what_is_left_out_is_filled_in(error: str | None, told: str):
    code, out, _ = tried("deploy", *([] if error is None else ["--error", error]))

    assert (code, out.splitlines()[0]) == (0, f"{told} ")


@pytest.mark.parametrize(
    ("step", "code", "said"),
    [
        ("again", 0, "step 'again' would run again: its handler succeeded"),
        (
            "clean",
            1,
            "the failure of step 'clean' would go to the next rung: a cleanup handler does not change the outcome",
        ),
        (
            "bad",
            1,
            "the failure of step 'bad' would go to the next rung: its handler also failed with EXIT_NONZERO 9: broken",
        ),
        ("ask", 4, "the handler of step 'ask' has not ended"),
    ],
)
def test_what_the_handler_would_make_of_the_step_is_told_and_is_the_exit_code(step: str, code: int, said: str):
    found, _, err = tried(step)

    assert (found, err.splitlines()[-1]) == (code, said)


@pytest.mark.parametrize(
    ("choice", "code", "said"),
    [
        (
            '{"status": "completed", "output": 7}',
            0,
            "step 'choose' would be completed, recovered by its custom handler, with output 7",
        ),
        ('{"status": "failed"}', 1, "the failure of step 'choose' would go to the next rung: its handler says so"),
    ],
    ids=["completed", "failed"],
)
def test_a_custom_handler_decides(choice: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHOICE", choice)

    found, _, err = tried("choose")

    assert (found, err.splitlines()[-1]) == (code, said)


def test_of_a_map_step_the_handler_of_a_command_is_tried_on_an_item():
    assert tried("check", "--item", '"x"', "--error", '{"code": "TIMEOUT"}') == (
        0,
        "fixed x after TIMEOUT\n",
        "-- 'check[0].0.on_failure@1.0', attempt 1\n"
        "the item of step 'check' would be completed, recovered by its recovery handler, "
        'with output "fixed x after TIMEOUT"\n',
    )
    assert tried("check", "--item", "3", "--command", 3)[1] == "other 3\n"


def test_a_handlers_trial_as_json_has_what_came_of_it_and_what_each_command_wrote():
    said = mulligan("step", workflow(HANDLED), "bad", "--handler", "--json")

    assert (said.code, said.json["outcome"], said.json["strategy"]) == (1, "failed", "recovery")
    assert said.json["failure"]["handler_failure"]["code"] == "HANDLER_FAILED"
    assert [(one["place"], one["stdout"], one["stderr"]) for one in said.json["commands"]] == [
        ("bad.on_failure@1.0", "one\n", ""),
        ("bad.on_failure@1.1", "", "broken\n"),
        ("bad.on_failure@1.1.on_failure@1.0", "", ""),
    ]


def test_a_handlers_trial_in_a_home_that_is_named_is_kept():
    said = mulligan("step", workflow(HANDLED), "again", "--handler", "--home", "kept")

    assert said.err.splitlines()[-1] == "kept as run 1 in 'kept'"
    assert mulligan("replay", 1, "--verify", "--home", "kept").code == 0


EXAMPLE = """  write it like '{"code": "TIMEOUT", "message": "took too long"}'\n"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bare",), "error[handler.none]: step 'bare' has no handler\n"),
        (
            ("check",),
            "error[handler.none]: step 'check' has no handler\n"
            "  its command 2 has one: try it for an item with --item JSON\n",
        ),
        (("check", "--item", "1", "--command", 1), "error[handler.none]: command 1 of step 'check' has no handler\n"),
        (("check", "--item", "1", "--command", 9), "error[handler.none]: step 'check' has no command 9\n  it has 3\n"),
        (("check", "--item", "x"), "error[usage]: 'x' is not JSON\n  write it like --item '\"text\"'\n"),
        (("deploy", "--item", "1"), "error[refused]: step 'deploy' is not a map: it has no items\n"),
        (("deploy", "--command", 1), "error[usage]: --command needs --item\n  name the item: --item JSON\n"),
        (
            ("deploy", "--error", "{"),
            f"error[input.invalid]: the error is not JSON: Input data was truncated\n{EXAMPLE}",
        ),
        (("deploy", "--error", "[]"), f"error[input.invalid]: the error is not a JSON object\n{EXAMPLE}"),
        (
            ("deploy", "--error", '{"cod": "TIMEOUT"}'),
            "error[input.invalid]: an error has no 'cod'\n  did you mean 'code'?\n",
        ),
        (
            ("deploy", "--error", '{"exit_code": "11"}'),
            "error[input.invalid]: the error does not fit: expected `int | null`, got `str` - at `$.exit_code`\n"
            + EXAMPLE,
        ),
        (
            ("deploy", "--error", '{"severity": "warning"}'),
            "error[input.invalid]: the error does not fit: invalid enum value 'warning' - at `$.severity`\n" + EXAMPLE,
        ),
        (("deploy", "--error", '{"exit_code": 0}'), f"error[input.invalid]: exit code 0 is not a failure\n{EXAMPLE}"),
    ],
    ids=[
        *("none", "map", "command", "no command", "item", "no map", "no item", "json", "object", "key", "type"),
        *("warning", "zero"),
    ],
)
def test_a_trial_that_makes_no_sense_is_refused_and_nothing_runs(words: tuple[object, ...], said: str):
    assert tried(*words) == (2, "", said)  # type: ignore[arg-type]


def test_what_is_about_a_handler_is_refused_without_one():
    assert mulligan("step", workflow(HANDLED), "bare", "--error", "{}") == (
        2,
        "",
        "error[usage]: --error, --item and --command need --handler\n  add --handler\n",
    )


def test_a_step_that_reads_what_nobody_handed_over_says_how_to_hand_it_over():
    said = mulligan("step", workflow(FLOW), "check")

    assert said == (
        1,
        "",
        "step 'check' failed with EXPRESSION_FAILED: 'over' gave nothing, not a list\n"
        "  the result of 'build' is null here; to give it: --result build=JSON\n",
    )


def test_of_several_results_that_nobody_handed_over_the_one_that_was_read_is_named():
    said = mulligan(
        "step",
        workflow("""\
name: release
steps:
  - {step: first, shell: echo}
  - {step: second, shell: echo}
  - {step: third, needs: [first, second], shell: "echo ${steps.first.output} ${steps.second.output.path}"}
"""),
        "third",
    )

    assert said == (
        1,
        "",
        "step 'third' failed with EXPRESSION_FAILED: 'steps.second.output.path': the field 'path' is read from null\n"
        "  the result of 'first', 'second' is null here; to give it: --result second=JSON\n",
    )


def test_a_trial_takes_no_path_that_leads_to_the_log_of_a_run():
    flow = workflow('steps: [{step: a, shell: "echo $MULLIGAN_RUN_ID", logs: {stdout: a.log}}]')
    mulligan("run", flow)
    before = Path("a.log").resolve()

    said = mulligan("step", flow, "a")

    assert said.code == 0
    assert Path("a.log").resolve() == before
    assert before.exists()
