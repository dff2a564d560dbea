"""`tool`, `tools` and `session`: how they are read, and what is refused where."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import AgentTools, Input
from mulligan.errors import LanguageError
from mulligan.language import load_text
from mulligan.language.python.builder import Workflow

FILE = """
inputs: {topic: {default: fjords}}
secrets: {key: {env: KEY}}
steps:
  - step: search
    description: Search the library
    tool: {inputs: {word: {description: what to find}, most: {type: integer, default: 3}}}
    python: |
      def main(word, most): return word * most
  - step: ask
    agent:
      prompt: Find ${inputs.topic}
      tools:
        - search
        - mcp: {command: "serve --dir 'a b'", env: {KEY: "${secrets.key}"}, timeout: 5s, on_lost: fail}
          allow: [x, y, x]
          prefix: net_
      max_turns: 5
      max_tool_calls: 9
      on_tool_failure: fail
      session: chat
    retry: {codes: [HTTP_5XX], conversation: new}
"""


def test_a_step_with_tool_is_not_part_of_the_graph_and_an_agent_has_it_with_its_inputs() -> None:
    workflow = load_text(FILE)

    (ask,) = workflow.steps
    assert ask.tools is not None
    (tool,) = ask.tools.steps
    assert (tool.name, tool.description) == ("search", "Search the library")
    assert tool.inputs == {
        "word": Input(description="what to find"),
        "most": Input("integer", 3, has_default=True),
    }
    # Without 'args' a python step gets its arguments by name.
    assert set(tool.command.action.params["args"]) == {"word", "most"}  # type: ignore[union-attr]


def test_the_limits_of_an_agent_its_session_and_the_rule_are_read() -> None:
    (ask,) = load_text(FILE).steps

    assert ask.tools is not None
    assert (ask.tools.max_turns, ask.tools.max_calls, ask.tools.on_failure) == (5, 9, "fail")
    assert (ask.session, ask.rules[0].restarts_conversation) == ("chat", True)
    assert ask.action is not None
    assert set(ask.action.params) == {"prompt"}


def test_a_server_is_a_command_that_calls_the_tool_which_the_place_names() -> None:
    (ask,) = load_text(FILE).steps

    assert ask.tools is not None
    (server,) = ask.tools.servers
    assert (server.allow, server.prefix, server.command.timeout, server.command.on_lost) == (
        ("x", "y"),
        "net_",
        5,
        "fail",
    )
    assert server.command.action is not None
    assert server.command.action.params["command"] == ["serve", "--dir", "a b"]
    assert server.command.action.bindings["_arguments"].reads == ("call",)


def test_a_workflow_built_in_python_has_the_same_keys() -> None:
    built = Workflow("research")
    built.step("look", description="look", tool={"inputs": {"word": "string"}}, shell="echo ${inputs.word}")
    built.step("ask", agent={"prompt": "?", "tools": ["look"]})

    (ask,) = built.check().steps

    assert isinstance(ask.tools, AgentTools)


TOOL = "- {step: look, description: d, tool: true, shell: look}"


@pytest.mark.parametrize(
    ("steps", "code", "line", "column"),
    [
        ("- {step: a, agent: {prompt: x, tools: [lok]}}", "unknown_tool", 3, 39),
        ("- {step: a, agent: {prompt: x, tools: [a]}}", "unknown_tool", 3, 39),
        ("- {step: a, agent: {prompt: x, tools: [look, look]}}", "duplicate_tool", 3, 45),
        ("- {step: a, agent: {prompt: x, tools: []}}", "type", 3, 38),
        ("- {step: a, agent: {prompt: x, max_turns: 3}}", "stray_key", 3, 31),
        ("- {step: a, agent: {prompt: x, tools: [{mcp: {command: s}}]}}", "missing_key", 3, 39),
        ("- {step: a, agent: {prompt: x, tools: [{mcp: {command: s, url: u}, allow: [t]}]}}", "stray_key", 3, 45),
        ('- {step: a, agent: {prompt: x, tools: [{mcp: {url: "http://u", env: {}}, allow: [t]}]}}', "stray_key", 3, 63),
        ("- {step: a, agent: {prompt: x, tools: [{mcp: {url: ftp}, allow: [t]}]}}", "address", 3, 51),
        ("- {step: a, needs: [look], shell: x}", "unknown_step", 3, 20),
        ("- {step: look, shell: x}", "duplicate_step", 2, 9),
        ("- {step: t, tool: true, description: d, needs: [a], shell: x}", "stray_key", 3, 40),
        ("- {step: t, tool: true, description: d, shell: 'echo ${steps.a.output}'}", "unknown_name", 3, 55),
        ("- {step: t, tool: true, description: d, agent: {prompt: x, tools: [look]}}", "stray_key", 3, 59),
        ("- {step: a, cache: true, agent: {prompt: x, tools: [look]}}", "stray_key", 3, 12),
    ],
)
def test_what_cannot_be_a_tool_is_refused_where_it_is_written(steps: str, code: str, line: int, column: int) -> None:
    with pytest.raises(LanguageError) as refused:
        load_text(f"steps:\n{TOOL}\n{steps}\n")

    first = refused.value.problems[0]
    assert (first.code, first.line, first.column - 1) == (f"language.{code}", line, column)


def test_an_argument_has_another_name_than_an_input_of_the_file() -> None:
    with pytest.raises(LanguageError) as refused:
        load_text(
            "inputs: {word: string}\nsteps: [{step: t, tool: {inputs: {word: string}}, shell: 'echo ${inputs.word}'}]"
        )

    assert refused.value.problems[0].code == "language.duplicate_input"
