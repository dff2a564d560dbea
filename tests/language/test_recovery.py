"""Retry rules, recovery scripts and handlers, in every form they can be written."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import (
    Action,
    Adjust,
    Backoff,
    Command,
    Expression,
    Handler,
    Resources,
    Rule,
    Template,
    Triage,
    TriageAgent,
)

from .reading import sources, step, steps

MAKE = Action("shell", {"text": "make", "strict": True})
RETRIES = [
    # a number
    ("3", (Rule(any=True, max_retries=3),)),
    # none at all
    ("0", ()),
    ("false", ()),
    ("true", (Rule(any=True),)),
    # one catch-all rule
    (
        "{max_retries: 2, delay: 2s, factor: 2, max_delay: 30s, jitter: 0.2}",
        (Rule(any=True, max_retries=2, backoff=Backoff(2.0, 2.0, 30.0, 0.2)),),
    ),
    # a delay for each retry
    (
        "{max_retries: 4, delays: [1s, 5s, 1m], max_delay: 30s}",
        (Rule(any=True, max_retries=4, backoff=Backoff(max_delay=30.0, delays=(1.0, 5.0, 60.0))),),
    ),
    # one rule with a filter
    ("{codes: TIMEOUT, max_retries: 1}", (Rule(codes=("TIMEOUT",), max_retries=1),)),
    # classes of exceptions: Python's own without their module, others with it
    (
        "{exceptions: [builtins.ConnectionError, IOError, httpx.TimeoutException, __main__.Refused]}",
        (Rule(exceptions=("ConnectionError", "OSError", "httpx.TimeoutException", "__main__.Refused")),),
    ),
    ("{exceptions: TimeoutError}", (Rule(exceptions=("TimeoutError",)),)),
    # a list of rules, in the order of the file
    (
        "{rules: [{exit_codes: 7}, {pattern: 'no space'}, {codes: [A_B, TIMEOUT]}, {any: true}]}",
        (
            Rule(exit_codes=(7,)),
            Rule(pattern="no space"),
            Rule(codes=("A_B", "TIMEOUT")),
            Rule(any=True),
        ),
    ),
]


@pytest.mark.parametrize(("written", "rules"), RETRIES)
def test_retry_takes_every_form(written: str, rules: tuple[Rule, ...]) -> None:
    assert step(f"shell: make\nretry: {written}").rules == rules


def test_a_policy_is_inlined_by_its_name_with_its_bounds() -> None:
    found = step(
        "shell: make\nretry: flaky",
        "retry_policies: {flaky: {rules: [{any: true, max_retries: 9}], max_attempts: 5, deadline: 1h}}",
    )

    assert (found.rules, found.max_attempts, found.deadline) == ((Rule(any=True, max_retries=9),), 5, 3600.0)


@pytest.mark.parametrize(
    ("written", "retries"),
    [
        ("{max_attempts: 5}", 4),
        ("{max_attempts: 1}", 0),
        ("{codes: [TIMEOUT], max_attempts: 5}", 4),
        # what is said holds, also where the attempts end first
        ("{max_attempts: 5, max_retries: 2}", 2),
        ("{max_attempts: 2, max_retries: 9}", 9),
    ],
)
def test_a_rule_alone_that_bounds_its_attempts_has_a_retry_for_each(written: str, retries: int) -> None:
    found = step(f"shell: make\nretry: {written}")

    assert [rule.max_retries for rule in found.rules] == [retries]


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("{exit_codes: 10-12}", Rule(exit_codes=(10, 11, 12))),
        ("{exit_codes: ['>=254', 2, '<= 1', 1-3]}", Rule(exit_codes=(254, 255, 2, 0, 1, 3))),
        ("{exit_codes: ['>253', '<1', 7 - 7]}", Rule(exit_codes=(254, 255, 0, 7))),
        ("{exit_codes: [1], max_attempts: 5}", Rule(exit_codes=(1,), max_retries=4, max_attempts=5)),
        ("{any: true, max_attempts: 1}", Rule(any=True, max_retries=0, max_attempts=1)),
        ("{any: true, max_attempts: 5, max_retries: 2}", Rule(any=True, max_retries=2, max_attempts=5)),
    ],
)
def test_a_rule_of_several_may_bound_the_attempts_by_itself(written: str, rule: Rule) -> None:
    found = step(f"shell: make\nretry: {{rules: [{written}], max_attempts: 9}}")

    assert (found.rules, found.max_attempts) == ((rule,), 9)


def test_a_steps_own_deadline_wins_over_its_policys() -> None:
    found = step("shell: make\nretry: {max_retries: 1, deadline: 1h}\ndeadline: 2h")

    assert found.deadline == 7200.0


def test_the_default_retry_holds_where_a_step_has_none() -> None:
    found = steps("- {step: a, shell: make}\n- {step: b, shell: make, retry: 0}", "defaults: {retry: 2}")

    assert found["a"].rules == (Rule(any=True, max_retries=2),)
    assert found["b"].rules == ()


def test_what_the_next_attempt_gets_more_of() -> None:
    found = step("shell: make\nretry: {codes: [OUT_OF_MEMORY], adjust: {memory: x1.5, max_memory: 16GiB, timeout: x2}}")

    assert found.rules[0].adjust == Adjust(memory=1.5, max_memory=16 * 2**30, timeout=2.0)


def test_a_recovery_script_runs_where_the_step_runs_and_knows_the_error() -> None:
    found = step(
        """
        shell: make
        env: {A: b}
        cwd: /tmp
        retry: {recovery_script: './clear.sh ${error.code}'}
        """
    )

    script = found.rules[0].recovery_script
    assert script == Command(
        action=Action(
            "shell",
            {"text": './clear.sh "${_error_code}"', "strict": True},
            {"_error_code": Template((Expression("error.code", ("error",)),))},
        ),
        timeout=300.0,
        env={"A": Template(("b",))},
        cwd=Template(("/tmp",)),
    )


def test_a_policys_script_reads_what_is_known_where_the_policy_is_used() -> None:
    top = """
    retry_policies:
      of_item: {recovery_script: "fix ${pkg.name}"}
      of_matrix: {recovery_script: "fix ${matrix.i}"}
    """

    found = steps(
        """
        - {step: each, map: {over: [{name: x}], as: pkg}, do: [{shell: make, retry: of_item}]}
        - {step: "s_{i}", matrix: {i: [7]}, shell: make, retry: of_matrix}
        """,
        top,
    )

    of_item = found["each"].do[0].rules[0].recovery_script
    of_matrix = found["s_7"].rules[0].recovery_script
    assert of_item and of_item.action
    assert of_item.action.bindings == {"_pkg_name": Template((Expression("pkg.name", ("pkg",)),))}
    assert of_matrix and of_matrix.action
    assert of_matrix.action.bindings == {"_matrix_i": Template((Expression("7"),))}


@pytest.mark.parametrize(
    ("script", "action"),
    [
        ("{agent: 'Why ${error.code}?'}", "agent"),
        ("{python: 'def main(): pass'}", "python"),
        ("{http: {url: 'http://host/${error.code}'}}", "http"),
        ("{wait: 5s}", "wait"),
    ],
)
def test_a_recovery_script_may_be_any_action(script: str, action: str) -> None:
    found = step(f"shell: make\nretry: {{recovery_script: {script}}}").rules[0].recovery_script

    assert found is not None and found.action is not None
    assert (found.action.kind, found.timeout) == (action, 300.0)


def test_a_recovery_script_may_have_its_own_time() -> None:
    found = step("shell: make\nretry: {recovery_script: {shell: ./clear.sh, timeout: 10s}}")

    assert found.rules[0].recovery_script == Command(
        action=Action("shell", {"text": "./clear.sh", "strict": True}), timeout=10.0
    )


HANDLERS = [
    # a text
    ("make", Handler((Command(action=MAKE),))),
    # an action
    ("{shell: make}", Handler((Command(action=MAKE),))),
    # a list of either
    (
        "[make, {shell: make, continue_on_error: true}]",
        Handler((Command(action=MAKE), Command(action=MAKE, continue_on_error=True))),
    ),
    # one action in the place of commands, with the handler's own keys
    (
        "{shell: make, strategy: fallback, timeout: 5m, retry: 2}",
        Handler((Command(action=MAKE, rules=(Rule(any=True, max_retries=2),)),), strategy="fallback", timeout=300.0),
    ),
    # commands
    ("{commands: [make], rerun: 2}", Handler((Command(action=MAKE),), rerun=2)),
    ("{commands: make}", Handler((Command(action=MAKE),))),
    # captured values
    (
        "{commands: [make], capture: {size: output.size, code: error.code}}",
        Handler(
            (Command(action=MAKE),),
            capture={"size": Expression("output.size", ("output",)), "code": Expression("error.code", ("error",))},
        ),
    ),
    # the capture format of its one command
    ("{shell: make, capture: json}", Handler((Command(action=MAKE, capture="json"),))),
    # a handler of a handler
    ("{shell: make, on_failure: make}", Handler((Command(action=MAKE, on_failure=Handler((Command(action=MAKE),))),))),
]


@pytest.mark.parametrize(("written", "handler"), HANDLERS)
def test_on_failure_takes_every_form(written: str, handler: Handler) -> None:
    assert step(f"shell: make\non_failure: {written}").on_failure == handler


def test_a_named_handler_is_inlined_where_it_is_used() -> None:
    found = step(
        "shell: make\nenv: {A: b}\ncapture: json\non_failure: {use: tidy}",
        "handlers: {tidy: [make, make]}",
    )

    env = {"A": Template(("b",))}
    assert found.on_failure == Handler(
        (Command(action=MAKE, capture="text", env=env), Command(action=MAKE, capture="json", env=env))
    )


@pytest.mark.parametrize(
    ("handler", "formats"),
    [
        # What the last command gives is the step's output: it has the step's format.
        ("make", ["json"]),
        ("[make, make]", ["text", "json"]),
        ("{commands: [make, make], strategy: fallback}", ["text", "json"]),
        ("[{shell: make, capture: lines}, {shell: make, capture: text}]", ["lines", "text"]),
        # Of these it is nobody's.
        ("{shell: make, strategy: cleanup}", ["text"]),
        ("{commands: [make, make], rerun: 1}", ["text", "text"]),
    ],
)
def test_of_a_handler_only_what_gives_the_output_inherits_its_format(handler: str, formats: list[str]) -> None:
    found = step(f"shell: make\ncapture: json\non_failure: {handler}")

    assert found.on_failure is not None
    assert [command.capture for command in found.on_failure.commands] == formats


def test_checks_and_what_runs_on_success_need_not_have_the_format_of_the_step() -> None:
    found = step("shell: make\ncapture: json\nvalidate: {shell: make}\non_success: [make, make]")

    assert found.validator == Command(action=MAKE)
    assert found.on_success == (Command(action=MAKE), Command(action=MAKE))


def test_a_handlers_command_inherits_how_its_step_runs_but_not_how_often() -> None:
    found = step(
        """
        shell: make
        capture: lines
        cwd: /tmp
        timeout: 5s
        retry: 3
        resources: {cpus: 2}
        on_failure: {shell: make, env: {X: y}}
        """
    )

    assert found.on_failure == Handler(
        (Command(action=MAKE, capture="lines", cwd=Template(("/tmp",)), env={"X": Template(("y",))}),)
    )


def test_a_handler_may_make_its_failure_fatal() -> None:
    found = step("shell: make\non_failure: {shell: make, handler_failure_fatal: true}")

    assert found.handler_failure_fatal


def test_a_failing_check_and_a_success_have_commands_of_their_own() -> None:
    found = steps(
        """
        - {step: a, shell: make, validate: "output != ''", on_success: [make, 'echo ${output}']}
        - {step: b, shell: make, validate: {shell: make}}
        """
    )

    assert found["a"].validate == Expression("output != ''", ("output",))
    assert found["a"].on_success[1].action == Action(
        "shell",
        {"text": 'echo "${_output}"', "strict": True},
        {"_output": Template((Expression("output", ("output",)),))},
    )
    assert found["b"].validator == Command(action=MAKE)
    assert found["b"].validate is None


def test_a_condition_may_stand_in_a_hole() -> None:
    found = step("shell: make\nvalidate: ${output == 'x'}")

    assert found.validate == Expression("output == 'x'", ("output",))


def test_resources_are_numbers() -> None:
    found = step("shell: make\nresources: {cpus: 1.5, memory: 512MiB, gpus: 1, labels: [big, fast]}")

    assert found.resources == Resources(1.5, 512 * 2**20, 1, ("big", "fast"))


# -- triage by an agent ----------------------------------------------------------------------------------------------


def triage(text: str) -> Triage:
    found = step(f"shell: make\ncwd: sub\ntriage: {text}").triage
    assert found is not None
    return found


def test_an_agent_that_is_asked_first_has_limits_by_default() -> None:
    assert triage("{by: agent, agent: claude}") == Triage(
        agent=TriageAgent(
            "claude",
            Command(
                action=Action("agent", {"provider": "claude"}), timeout=300.0, deadline=300.0, cwd=Template(("sub",))
            ),
            may=("retry", "fail"),
            min_confidence=0.8,
            max_per_run=3,
        )
    )


def test_every_limit_of_an_agent_can_be_written_and_its_time_is_its_own() -> None:
    found = triage(
        "{by: agent, agent: {provider: mine, prompt: 'Of run ${run.id}', model: small, timeout: 2m}, may: retry,"
        " min_confidence: 1, max_per_run: 0, timeout: 1h, default: retry, memory_max: 4GiB, timeout_max: 30m}"
    )

    assert (found.timeout, found.default) == (3600.0, "retry")
    agent = found.agent
    assert agent is not None and agent.command.action is not None
    assert (agent.provider, agent.may, agent.min_confidence, agent.max_per_run) == ("mine", ("retry",), 1.0, 0)
    assert (agent.memory_max, agent.timeout_max) == (4 * 2**30, 1800.0)
    assert (agent.command.timeout, agent.command.deadline) == (120.0, 120.0)
    assert agent.command.action.params == {"provider": "mine", "prompt": {"${}": "b0"}, "model": "small"}
    assert sources(agent.command.action.bindings["b0"]) == ["Of run ", "${run.id}"]


def test_by_a_person_is_what_triage_means_without_an_agent() -> None:
    assert triage("{by: person, timeout: 1h}") == Triage(timeout=3600.0)
