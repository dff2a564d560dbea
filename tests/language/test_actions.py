"""Actions: the program apart from the values that go in."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import Action, Command, Expression, Step, Template
from mulligan.language.shell.shell import strict_options

from .reading import step, steps

INPUTS = "inputs: {x: string, n: integer}"


def hole(source: str, *reads: str) -> Template:
    return Template((Expression(source, reads),))


def test_shell_text_without_holes_stays_as_it_is() -> None:
    found = step("shell: echo $HOME ${HOME} | wc")

    assert found.action == Action("shell", {"text": "echo $HOME ${HOME} | wc", "strict": True})


def test_a_value_in_shell_text_is_an_environment_variable() -> None:
    found = step("shell: echo ${inputs.x}", INPUTS)

    assert found.action == Action(
        "shell", {"text": 'echo "${_inputs_x}"', "strict": True}, {"_inputs_x": hole("inputs.x", "inputs")}
    )


def test_stdin_may_be_any_value_with_holes() -> None:
    found = step("shell: cat\nstdin: {a: '${inputs.x}', b: 1}", INPUTS)

    assert found.action == Action(
        "shell",
        {"text": "cat", "strict": True, "stdin": {"a": {"${}": "b0"}, "b": 1}},
        {"b0": hole("inputs.x", "inputs")},
    )


def test_the_interpreter_comes_from_the_defaults() -> None:
    found = steps(
        "- {step: a, shell: make}\n- {step: b, python: {call: 'm:f'}}", "defaults: {shell: bash, python: pypy3}"
    )

    assert found["a"].action == Action("shell", {"text": "make", "interpreter": "bash", "strict": True})
    assert found["b"].action == Action("python", {"call": "m:f", "interpreter": "pypy3"})


def test_a_step_may_name_its_own_interpreter() -> None:
    found = steps(
        """
        - {step: a, shell: {text: "make ${inputs.x}", shell: /bin/dash}}
        - {step: b, python: {call: 'm:f', python: python3.13}}
        - {step: c, python: {code: 'def main(x): pass', python: .venv/bin/python}, args: {x: 1}}
        - {step: d, shell: {text: make}}
        """,
        f"defaults: {{shell: bash, python: pypy3}}\n{INPUTS}",
    )

    assert found["a"].action == Action(
        "shell",
        {"text": 'make "${_inputs_x}"', "interpreter": "/bin/dash", "strict": True},
        {"_inputs_x": hole("inputs.x", "inputs")},
    )
    assert found["b"].action == Action("python", {"call": "m:f", "interpreter": "python3.13"})
    assert found["c"].action == Action(
        "python", {"args": {"x": 1}, "code": "def main(x): pass", "interpreter": ".venv/bin/python"}
    )
    assert found["d"].action == Action("shell", {"text": "make", "interpreter": "bash", "strict": True})


STRICT = """
- {step: by_default, shell: make, undo: make, on_failure: make}
- {step: off, strict: false, shell: make, undo: make, on_failure: make, retry: {recovery_script: make}}
- {step: on_in_handler, strict: false, shell: make, on_failure: {shell: make, strict: true}}
- {step: off_in_long_form, shell: {text: make, strict: false}, on_failure: make}
- {step: off_in_script, shell: make, retry: {recovery_script: {shell: make, strict: false}}}
- {step: mapped, strict: false, map: {over: {shell: ls}}, do: [make, {shell: make, strict: true}]}
"""


def test_shell_text_is_strict_unless_the_nearest_strict_says_otherwise() -> None:
    found = steps(STRICT)

    def is_strict(*commands: Command | Step | None) -> list[bool]:
        actions = [command.action for command in commands if command is not None]
        return [bool(action and action.params.get("strict")) for action in actions]

    def handled(step: Step) -> Command:
        assert step.on_failure is not None
        return step.on_failure.commands[0]

    by_default, off, mapped = found["by_default"], found["off"], found["mapped"]
    assert is_strict(by_default, by_default.undo, handled(by_default)) == [True, True, True]
    assert is_strict(off, off.undo, handled(off), off.rules[0].recovery_script) == [False, False, False, False]
    assert is_strict(found["on_in_handler"], handled(found["on_in_handler"])) == [False, True]
    assert is_strict(found["off_in_long_form"], handled(found["off_in_long_form"])) == [False, True]
    assert is_strict(found["off_in_script"], found["off_in_script"].rules[0].recovery_script) == [True, False]
    assert mapped.map is not None
    assert is_strict(mapped.map.lister, *mapped.do) == [False, False, True]


def test_defaults_turn_strictness_off_for_the_whole_file() -> None:
    found = steps("- {step: a, shell: make}\n- {step: b, shell: make, strict: true}", "defaults: {strict: false}")

    assert [found[name].action for name in "ab"] == [
        Action("shell", {"text": "make"}),
        Action("shell", {"text": "make", "strict": True}),
    ]


@pytest.mark.parametrize(
    ("program", "options"),
    [
        *((name, "-e -u -o pipefail") for name in ("bash", "/usr/bin/bash", "bash-5.2", "zsh", "ksh93", "mksh")),
        *((name, "-e -u") for name in ("sh", "/bin/sh", "dash", "ash", "yash")),
        *((name, "") for name in ("fish", "python3", "/opt/tool.sh/run")),
    ],
)
def test_each_shell_gets_the_strict_options_that_it_knows(program: str, options: str) -> None:
    assert " ".join(strict_options(program)) == options


@pytest.mark.parametrize("program", ["bash", "sh", "/bin/dash", "ash", "ksh93", "mksh", "zsh-5.9", "yash", "bash-5.2"])
def test_a_shell_reads_values_as_variables(program: str) -> None:
    found = step(f"shell: {{text: 'echo ${{inputs.x}}', shell: {program}}}", INPUTS)

    assert found.action is not None
    assert found.action.params["text"] == 'echo "${_inputs_x}"'


@pytest.mark.parametrize("text", ["console.log(`${name}`)", "say ${HOME}", "${}", "a ${unknown.x} b"])
def test_the_text_of_another_program_is_its_own(text: str) -> None:
    found = step(f"shell: {{text: {text!r}, shell: fish}}", INPUTS)

    assert found.action == Action("shell", {"text": text, "interpreter": "fish", "strict": True})


def test_code_for_another_interpreter_may_be_written_in_its_own_python() -> None:
    found = step("python: {code: 'print 1', python: python2}")

    assert found.action == Action("python", {"code": "print 1", "interpreter": "python2"})


def test_inline_python_takes_its_arguments_by_name() -> None:
    found = step(
        """
        python: |
          import json
          def main(x, *, n=1):
              return {"x": x}
        args: {x: "${inputs.x}", n: 3}
        """,
        INPUTS,
    )

    assert found.action is not None
    assert found.action.kind == "python"
    assert found.action.params["args"] == {"x": {"${}": "b0"}, "n": 3}
    assert found.action.params["code"].startswith("import json\ndef main")
    assert found.action.bindings == {"b0": hole("inputs.x", "inputs")}


def test_main_may_take_whatever_comes() -> None:
    found = step("python: 'def main(**anything): pass'\nargs: {a: 1, b: [2]}")

    assert found.action is not None
    assert found.action.params["args"] == {"a": 1, "b": [2]}


def test_a_python_function_is_called_by_its_name() -> None:
    found = step("python: {call: 'package.module:function'}\nargs: {a: 1}")

    assert found.action == Action("python", {"call": "package.module:function", "args": {"a": 1}})


def test_http_keeps_its_holes_apart_at_any_depth() -> None:
    found = step(
        """
        http:
          method: POST
          url: https://x.example/${inputs.x}
          headers: {X-Trace: "${run.id}"}
          json: {list: ["${inputs.n}", 2]}
          expect: [200, 201]
        """,
        INPUTS,
    )

    assert found.action == Action(
        "http",
        {
            "method": "POST",
            "expect": [200, 201],
            "url": {"${}": "b0"},
            "headers": {"X-Trace": {"${}": "b1"}},
            "json": {"list": [{"${}": "b2"}, 2]},
        },
        {
            "b0": Template(("https://x.example/", Expression("inputs.x", ("inputs",)))),
            "b1": hole("run.id", "run"),
            "b2": hole("inputs.n", "inputs"),
        },
    )


def test_http_is_a_get_unless_it_says_otherwise() -> None:
    found = step("http: {url: 'http://x'}")

    assert found.action == Action("http", {"url": "http://x", "method": "GET"})


def test_values_in_a_query_are_bound_by_name() -> None:
    found = step(
        """
        sql:
          connection: "${secrets.db}"
          query: select * from t where a = ${inputs.x}::text and b = :own
            and c = ${inputs.n}
          params: {own: 3}
        """,
        INPUTS + "\nsecrets: {db: {env: DB}}",
    )

    assert found.action is not None
    assert found.action.params == {
        "connection": {"${}": "b0"},
        "query": "select * from t where a = :mulligan_0::text and b = :own and c = :mulligan_1",
        "params": {"own": 3, "mulligan_0": {"${}": "b1"}, "mulligan_1": {"${}": "b2"}},
    }
    assert found.action.bindings["b1"] == hole("inputs.x", "inputs")


def test_how_a_query_is_made_is_part_of_its_action() -> None:
    found = step("sql: {connection: 'sqlite://', query: select 1, read_only: true, rows: none}")

    assert found.action == Action(
        "sql", {"connection": "sqlite://", "read_only": True, "rows": "none", "query": "select 1"}
    )


def test_an_agent_takes_a_prompt_or_a_mapping() -> None:
    found = steps(
        "- {step: a, agent: 'look at ${run.id}'}\n- {step: b, agent: {provider: claude, prompt: fix, model: m}}"
    )

    assert found["a"].action == Action(
        "agent", {"prompt": {"${}": "b0"}}, {"b0": Template(("look at ", Expression("run.id", ("run",))))}
    )
    assert found["b"].action == Action("agent", {"provider": "claude", "prompt": "fix", "model": "m"})


def test_the_provider_of_agents_comes_from_the_defaults_where_an_agent_names_none() -> None:
    found = steps(
        "- {step: a, agent: fix, on_failure: {agent: help}}\n- {step: b, agent: {prompt: fix, provider: claude}}",
        "defaults: {agent: my-own}",
    )

    assert found["a"].action == Action("agent", {"prompt": "fix", "provider": "my-own"})
    assert found["a"].on_failure is not None
    assert found["a"].on_failure.commands[0].action == Action("agent", {"prompt": "help", "provider": "my-own"})
    assert found["b"].action == Action("agent", {"prompt": "fix", "provider": "claude"})


@pytest.mark.parametrize(
    ("written", "params"),
    [
        ("wait: 30s", {"seconds": 30.0}),
        ("wait: 5", {"seconds": 5.0}),
        ("wait: PT5M", {"seconds": 300.0}),
        ("wait: {until: '2030-01-31T09:00:00Z'}", {"until": "2030-01-31T09:00:00Z"}),
        ("approve: may it go?", {"message": "may it go?"}),
        (
            "approve: {message: go?, timeout: 1h, default: approve}",
            {"message": "go?", "timeout": 3600.0, "default": "approve"},
        ),
    ],
)
def test_what_the_engine_does_itself(written: str, params: dict[str, object]) -> None:
    found = step(written)

    assert found.action is not None
    assert found.action.params == params


def test_the_time_of_an_approval_may_stand_beside_it() -> None:
    found = step("approve: go?\ntimeout: 1h")

    assert found.action == Action("approve", {"message": "go?", "timeout": 3600.0})


def test_a_wait_may_be_computed() -> None:
    found = step("wait: ${inputs.n}", INPUTS)

    assert found.action == Action("wait", {"seconds": {"${}": "b0"}}, {"b0": hole("inputs.n", "inputs")})


def test_a_doubled_dollar_is_text() -> None:
    found = step("agent: write $${x} as it is")

    assert found.action == Action("agent", {"prompt": "write ${x} as it is"})
