"""An agent with tools: its model is asked, tools run as places, and nothing that has ended runs again."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.rounds.fork import kept_sessions
from mulligan.core.effects import effects as fx
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model.agents.spending import Spent
from mulligan.core.model.event_types import Kept
from mulligan.core.model.workflow import (
    Action,
    AgentTools,
    Budget,
    Command,
    Expression,
    Input,
    Rule,
    Step,
    StepTool,
    Template,
    ToolServer,
)
from mulligan.core.turn import fold
from mulligan.testing.history import History, command, handler, retry, step, workflow

ASK = Action("agent", {"provider": "scripted", "prompt": "Which city is warmer?"})
WEATHER = StepTool(
    "weather",
    command("weather"),
    description="Tell the weather of a city",
    inputs={"city": Input(), "days": Input("integer", 1, has_default=True)},
)


def agent(name: str = "ask", tools: AgentTools | None = None, **fields: Any) -> Step:
    return step(name, action=ASK, tools=tools or AgentTools(steps=(WEATHER,)), **fields)


def begin(*steps: Step, **fields: Any) -> History:
    return History(workflow(*(steps or (agent(),)), **fields)).start()


def asks(*calls: tuple[str, dict[str, Any]], content: str = "") -> dict[str, Any]:
    """What a model answers that asks for tools."""
    wanted = [{"id": f"c{i}", "name": name, "arguments": arguments} for i, (name, arguments) in enumerate(calls)]
    return {"content": content, "tool_calls": wanted}


def answers(text: str = "Oslo") -> dict[str, Any]:
    return {"content": text, "decision": None, "tokens": None}


def weather(city: str) -> tuple[str, dict[str, Any]]:
    return "weather", {"city": city}


def tool_answers(run: History) -> list[tuple[str, Any, str]]:
    return [(fact.tool, fact.output, fact.error) for fact in run.facts(e.ToolAnswered)]


# -- the loop --------------------------------------------------------------------------------------------------------


def test_a_model_is_asked_its_tools_are_called_and_its_answer_is_the_output() -> None:
    run = begin()

    run.ok("ask.model@1.0", output=asks(weather("Oslo"), weather("Rome")))
    assert run.queued == ["ask.tool@1.0"]
    run.ok("ask.tool@1.0", output="3 degrees")
    run.ok("ask.tool@1.1", output="20 degrees")
    run.ok("ask.model@1.1", output=answers("Rome"))

    assert (run.status, run["ask"].output) == ("completed", answers("Rome"))
    assert tool_answers(run) == [("weather", "3 degrees", ""), ("weather", "20 degrees", "")]
    assert run["ask"].spent == Spent(calls=2, tool_calls=2)


def test_an_event_says_which_tool_was_called_with_which_arguments_and_its_defaults() -> None:
    run = begin().ok("ask.model@1.0", output=asks(weather("Oslo")))

    (called,) = run.facts(e.ToolCalled)

    assert (called.place, called.number, called.tool, called.id) == ("ask", 0, "weather", "c0")
    assert called.arguments == {"city": "Oslo", "days": 1}
    assert run["ask.tool@1.0"].call.arguments == {"city": "Oslo", "days": 1}


def test_the_expressions_of_a_tool_read_its_arguments_as_inputs() -> None:
    place = Template((Expression("inputs", ("inputs",)),))
    tool = StepTool("weather", Command(action=Action("shell", {"text": "x"}, {"CITY": place})), inputs=WEATHER.inputs)
    definition = workflow(agent(tools=AgentTools(steps=(tool,))), inputs={"unit": Input()})
    run = History(definition, {"inputs": lambda names: dict(names["inputs"])}).start({"unit": "C"})

    run.ok("ask.model@1.0", output=asks(weather("Oslo")))

    assert make_task(run.state, "ask.tool@1.0").env == {"CITY": {"unit": "C", "city": "Oslo", "days": 1}}


def test_a_model_is_told_the_turns_so_far_and_the_schema_of_the_tools() -> None:
    run = begin().ok("ask.model@1.0", output=asks(weather("Oslo"))).ok("ask.tool@1.0", output="3 degrees")

    task = make_task(run.state, "ask.model@1.1")

    assert (task.kind, task.role, task.step, task.params) == ("agent", "model", "ask", ASK.params)
    assert task.conversation["turns"] == [{"answer": asks(weather("Oslo")), "results": [{"output": "3 degrees"}]}]
    (tool,) = task.conversation["tools"]
    assert tool["description"] == "Tell the weather of a city"
    assert tool["schema"]["required"] == ["city"]
    assert tool["schema"]["properties"]["days"] == {"type": "integer", "default": 1}


def test_each_question_has_the_prompt_of_the_attempt_whatever_the_run_has_become() -> None:
    prompt = Template((Expression("run.data.city", ("run",)),))
    ask = Action("agent", {"prompt": {"${}": "p"}}, {"p": prompt})
    definition = workflow(step("ask", action=ask, tools=AgentTools(steps=(WEATHER,))))
    values = iter(("first", "second"))
    run = History(definition, {"run.data.city": lambda names: next(values)}).start()

    run.ok("ask.model@1.0", output=asks(weather("Oslo"))).ok("ask.tool@1.0")

    assert make_task(run.state, "ask.model@1.1").params["prompt"] == "first"


# -- what cannot be called -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (("forecast", {}), "there is no tool 'forecast'; the tools are: weather"),
        (("weather", {}), "the argument 'city' is missing"),
        (("weather", {"city": 3}), "the argument 'city' is not of its type, string"),
        (("weather", {"city": "Oslo", "week": 1}), "there is no argument 'week'; the arguments are: city, days"),
        (("weather", "{"), "the arguments are not JSON"),
        (("weather", "[1]"), "the arguments are not an object"),
        (("weather", {"city": {"$artifact": {"name": "9/x"}}}), "the arguments have the key '$artifact'"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_to_the_model_and_costs_nothing(call: Any, why: str) -> None:
    run = begin().ok("ask.model@1.0", output=asks(call))

    ((_, output, error),) = tool_answers(run)

    assert output is None
    assert error.startswith(why)
    assert run.queued == ["ask.model@1.1"]
    assert run["ask"].spent == Spent(calls=2)


def test_a_tool_that_fails_is_told_to_the_model_after_its_own_retries() -> None:
    tool = StepTool("weather", command("w", rules=retry(1)), inputs=WEATHER.inputs)
    run = begin(agent(tools=AgentTools(steps=(tool,)))).ok("ask.model@1.0", output=asks(weather("Oslo")))

    run.fail("ask.tool@1.0", stderr_tail="no route").fail("ask.tool@1.0", stderr_tail="no route")

    assert tool_answers(run) == [("weather", None, "EXIT_NONZERO: no route")]
    assert run.ok("ask.model@1.1", output=answers()).status == "completed"


def test_a_tool_that_fails_fails_the_agent_if_it_says_so_and_a_retry_calls_it_again() -> None:
    tools = AgentTools(steps=(WEATHER,), on_failure="fail")
    run = begin(agent(tools=tools, rules=retry(1))).ok("ask.model@1.0", output=asks(weather("a"), weather("b")))

    run.ok("ask.tool@1.0", output="fine").fail("ask.tool@1.1")

    (failed,) = (fact for fact in run.facts(e.AttemptFailed) if fact.place == "ask")
    assert (failed.failure.code, failed.failure.cause[0].code) == ("TOOL_FAILED", "EXIT_NONZERO")
    # The model is not asked again, and the call that has ended is not made again.
    assert run.queued == ["ask.tool@2.0"]
    assert run["ask.tool@2.0"].call.arguments["city"] == "b"


def test_an_answer_that_asks_for_hundreds_of_tools_fails_the_attempt() -> None:
    run = begin().ok("ask.model@1.0", output=asks(*[weather("a")] * 129))

    assert run["ask"].failure.code == "OUTPUT_INVALID"
    assert not run.facts(e.ToolCalled)


# -- limits ----------------------------------------------------------------------------------------------------------


def test_an_agent_without_an_answer_after_max_turns_has_failed() -> None:
    run = begin(agent(tools=AgentTools(steps=(WEATHER,), max_turns=2)))

    for turn in range(2):
        run.ok(f"ask.model@1.{turn}", output=asks(weather("a"))).ok(f"ask.tool@1.{turn}")

    assert (run["ask"].failure.code, run["ask"].failure.details) == ("TURN_LIMIT", {"max_turns": 2})
    assert run.queued == []


def test_beyond_the_most_calls_the_model_is_told_to_answer() -> None:
    run = begin(agent(tools=AgentTools(steps=(WEATHER,), max_calls=1)))

    run.ok("ask.model@1.0", output=asks(weather("a"), weather("b"))).ok("ask.tool@1.0", output="fine")

    assert [error[:33] for _, _, error in tool_answers(run)] == ["", "no further tool can be called: th"]
    assert run.queued == ["ask.model@1.1"]


def test_a_budget_of_tool_calls_fails_the_agent_that_asks_for_more() -> None:
    run = begin(agent(budget=Budget(tool_calls=1))).ok("ask.model@1.0", output=asks(weather("a"), weather("b")))

    run.ok("ask.tool@1.0")

    assert run["ask"].failure.code == "BUDGET_EXCEEDED"
    assert run["ask"].failure.details == {"budget": "step", "what": "tool_calls", "limit": 1, "spent": 1}


def test_an_agent_may_still_answer_when_no_tool_call_is_left() -> None:
    run = begin(agent(budget=Budget(tool_calls=1))).ok("ask.model@1.0", output=asks(weather("a")))

    run.ok("ask.tool@1.0").ok("ask.model@1.1", output=answers())

    assert run.status == "completed"


def test_a_budget_of_calls_counts_the_questions_and_not_the_agent() -> None:
    run = begin(agent(budget=Budget(calls=2))).ok("ask.model@1.0", output=asks(weather("a"))).ok("ask.tool@1.0")

    run.ok("ask.model@1.1", output=asks(weather("b"))).ok("ask.tool@1.1")

    assert run["ask"].failure.details["what"] == "calls"
    assert run["ask"].spent == Spent(calls=2, tool_calls=2)


def test_a_timeout_ends_the_whole_attempt_with_the_tool_that_runs() -> None:
    run = begin(agent(timeout=60.0)).ok("ask.model@1.0", output=asks(weather("a"))).started("ask.tool@1.0")

    run.wait(61)
    assert fx.StopTask("ask.tool@1.0", 1, 10.0) in run.effects
    run.fail("ask.tool@1.0", signal=15, is_stopped=True)

    assert run["ask"].failure.code == "TIMEOUT"
    assert run["ask"].failure.details == {"limit": "timeout", "timeout": 60.0}


def test_a_deadline_ends_the_agent_while_its_model_is_queued() -> None:
    run = begin(agent(deadline=60.0)).wait(61)

    assert (run["ask"].failure.code, run.queued) == ("TIMEOUT", [])


# -- failures of the model -------------------------------------------------------------------------------------------


def test_a_failed_question_fails_the_attempt_and_the_next_one_goes_on_with_the_turns() -> None:
    run = begin(agent(rules=retry(1))).ok("ask.model@1.0", output=asks(weather("a"))).ok("ask.tool@1.0", output="fine")

    run.fail("ask.model@1.1", code="HTTP_5XX", exit_code=None)

    assert run.queued == ["ask.model@2.0"]
    task = make_task(run.state, "ask.model@2.0")
    assert [len(turn["results"]) for turn in task.conversation["turns"]] == [1]
    assert "note" not in task.conversation
    assert run.ok("ask.model@2.0", output=answers()).status == "completed"
    assert len(run.facts(e.ToolCalled)) == 1


def test_a_rule_may_begin_the_conversation_again() -> None:
    rules = (Rule(any=True, max_retries=1, restarts_conversation=True),)
    run = begin(agent(rules=rules)).ok("ask.model@1.0", output=asks(weather("a"))).ok("ask.tool@1.0")

    run.fail("ask.model@1.1")

    assert "turns" not in make_task(run.state, "ask.model@2.0").conversation


def test_a_rejected_answer_is_told_to_the_model_with_what_was_wrong() -> None:
    definition = workflow(agent(validate=Expression("ok", ("output",)), rules=retry(1)))
    run = History(definition, {"ok": lambda names: names["output"]["content"] == "Rome"}).start()

    run.ok("ask.model@1.0", output=answers("Oslo"))

    talk = make_task(run.state, "ask.model@2.0").conversation
    assert [turn["answer"]["content"] for turn in talk["turns"]] == ["Oslo"]
    assert "'ok' does not hold" in talk["note"]
    assert run.ok("ask.model@2.0", output=answers("Rome")).status == "completed"


def test_a_visit_begins_a_new_conversation() -> None:
    run = begin(agent(on_failure=None)).ok("ask.model@1.0", output=asks(weather("a"))).ok("ask.tool@1.0")
    run.fail("ask.model@1.1")

    run.retry()

    assert run.queued == ["ask.model@2.0"]
    assert "turns" not in make_task(run.state, "ask.model@2.0").conversation


# -- workers and engines that are lost -------------------------------------------------------------------------------


def test_a_lost_call_is_made_again_and_calls_that_have_ended_are_not() -> None:
    run = begin().ok("ask.model@1.0", output=asks(weather("a"), weather("b"))).ok("ask.tool@1.0", output="fine")

    run.started("ask.tool@1.1").lose("ask.tool@1.1")

    assert (run.queued, run["ask.tool@1.1"].attempt) == (["ask.tool@1.1"], 2)
    assert len(run.facts(e.ToolCalled)) == 2


def test_a_rule_of_the_agent_for_lost_workers_decides_about_a_lost_question() -> None:
    rules = (Rule(codes=("WORKER_LOST",), max_retries=1),)
    run = begin(agent(rules=rules)).started("ask.model@1.0").lose("ask.model@1.0")

    assert run.queued == ["ask.model@2.0"]


def test_a_run_that_is_read_from_its_log_at_any_moment_is_the_run() -> None:
    run = begin(agent(rules=retry(1))).ok("ask.model@1.0", output=asks(weather("a"), ("nothing", {})))
    run.ok("ask.tool@1.0", output="fine").fail("ask.model@1.1").ok("ask.model@2.0", output=answers())

    assert fold(run.state.workflow, run.log) == run.state


# -- stopping --------------------------------------------------------------------------------------------------------


def test_a_cancelled_run_stops_the_tool_and_asks_nothing_more() -> None:
    run = begin().ok("ask.model@1.0", output=asks(weather("a"))).started("ask.tool@1.0").cancel()

    run.fail("ask.tool@1.0", signal=15, is_stopped=True)

    assert (run.status, run.statuses) == ("cancelled", {"ask": "cancelled"})


def test_an_approval_may_be_a_tool() -> None:
    tool = StepTool("approve", Command(action=Action("approve", {"message": "Buy it?"})))
    run = begin(agent(tools=AgentTools(steps=(tool,)))).ok("ask.model@1.0", output=asks(("approve", {})))

    run.approve("ask.tool@1.0")

    assert tool_answers(run)[0][1]["approved"] is True


def test_a_paused_run_goes_on_with_the_next_tool_when_it_is_resumed() -> None:
    run = begin().started("ask.model@1.0").pause().ok("ask.model@1.0", output=asks(weather("a"))).resume()

    assert run.ok("ask.tool@1.0").ok("ask.model@1.1", output=answers()).status == "completed"


def test_an_agent_with_tools_may_be_a_command_of_a_handler() -> None:
    fix = handler()
    fix = type(fix)((Command(action=ASK, tools=AgentTools(steps=(WEATHER,))),))
    run = begin(step("build", on_failure=fix)).fail("build")

    run.ok("build.on_failure@1.0.model@1.0", output=asks(weather("a")))
    run.ok("build.on_failure@1.0.tool@1.0").ok("build.on_failure@1.0.model@1.1", output=answers("fixed"))

    assert (run.status, run["build"].output) == ("completed", answers("fixed"))


# -- servers ---------------------------------------------------------------------------------------------------------

MCP_ACTION = Action(
    "mcp",
    {"command": "serve", "tool": {"${}": "_tool"}, "arguments": {"${}": "_arguments"}},
    {
        "_tool": Template((Expression("call.tool", ("call",)),)),
        "_arguments": Template((Expression("call.arguments", ("call",)),)),
    },
)
CALLS = {
    "call.tool": lambda names: names["call"]["tool"],
    "call.arguments": lambda names: names["call"]["arguments"],
}
LISTED = {"tools": [{"name": "git.log", "description": "history", "schema": {"type": "object"}}, {"name": "push"}]}


def served(*allow: str, **fields: Any) -> History:
    server = ToolServer(Command(action=MCP_ACTION), allow, **fields)
    tools = AgentTools(steps=(WEATHER,), servers=(server,))
    return History(workflow(agent(tools=tools)), CALLS).start()


def test_the_tools_of_a_server_are_listed_once_per_attempt_and_called_by_name() -> None:
    run = served("git.log")
    assert make_task(run.state, "ask.tool_list@1.0").params == {"command": "serve"}

    run.ok("ask.tool_list@1.0", output=LISTED).ok("ask.model@1.0", output=asks(("git_log", {"n": 3})))

    task = make_task(run.state, "ask.tool@1.0")
    assert task.params == {"command": "serve", "tool": "git.log", "arguments": {"n": 3}}
    assert (task.kind, run["ask.tool@1.0"].index) == ("mcp", 1)


def test_a_tool_that_is_not_allowed_does_not_exist_for_the_model() -> None:
    run = served("git.log").ok("ask.tool_list@1.0", output=LISTED)

    run.ok("ask.model@1.0", output=asks(("push", {})))

    assert tool_answers(run) == [("push", None, "there is no tool 'push'; the tools are: weather, git_log")]


def test_an_allowed_tool_that_the_server_lacks_fails_the_attempt_before_the_model_is_asked() -> None:
    run = served("git.log", "pull").ok("ask.tool_list@1.0", output=LISTED)

    assert (run["ask"].failure.code, run["ask"].failure.message) == (
        "INPUT_INVALID",
        "the MCP server has no tool 'pull'",
    )


def test_two_tools_of_one_name_are_refused_and_a_prefix_tells_them_apart() -> None:
    listed = {"tools": [{"name": "weather"}]}

    run = served("weather").ok("ask.tool_list@1.0", output=listed)
    assert "two tools of the agent are called 'weather'" in run["ask"].failure.message

    run = served("weather", prefix="net_").ok("ask.tool_list@1.0", output=listed)
    assert run.queued == ["ask.model@1.0"]


def test_arguments_that_look_like_a_hole_are_passed_on_as_they_are() -> None:
    run = served("git.log").ok("ask.tool_list@1.0", output=LISTED)

    run.ok("ask.model@1.0", output=asks(("git_log", {"x": {"${}": "_tool"}})))

    assert make_task(run.state, "ask.tool@1.0").params["arguments"] == {"x": {"${}": "_tool"}}


# -- sessions --------------------------------------------------------------------------------------------------------


def talker(name: str, **fields: Any) -> Step:
    return step(name, action=Action("agent", {"prompt": f"{name}?"}), session="chat", **fields)


def test_the_messages_of_an_agent_precede_those_of_the_next_one_with_its_session() -> None:
    run = begin(talker("a"), talker("b", needs=["a"]), agent("other", needs=["a"]))

    run.ok("a.model@1.0", output=answers("yes"))

    (said,) = make_task(run.state, "b.model@1.0").conversation["session"]
    assert said == [{"role": "user", "text": "a?"}, {"role": "assistant", "text": "yes"}]
    assert "session" not in make_task(run.state, "other.model@1.0").conversation


def test_a_session_that_is_too_long_drops_its_oldest_parts_and_says_so() -> None:
    run = begin(talker("a"), talker("b", needs=["a"]), talker("c", needs=["b"]))

    run.ok("a.model@1.0", output=answers("x" * 120_000)).ok("b.model@1.0", output=answers("y" * 120_000))

    assert [(fact.place, fact.dropped) for fact in run.facts(e.SessionKept)] == [("a", 0), ("b", 1)]
    (said,) = make_task(run.state, "c.model@1.0").conversation["session"]
    assert said[1]["text"] == "y" * 120_000


def test_an_answer_that_was_rejected_is_not_kept_in_the_session() -> None:
    definition = workflow(talker("a", validate=Expression("ok", ("output",))))
    run = History(definition, {"ok": False}).start().ok("a.model@1.0", output=answers("yes"))

    assert run.facts(e.SessionKept) == []


def test_a_secret_in_a_prompt_does_not_become_part_of_the_session() -> None:
    template = Template(("key ", Expression("secrets.k", ("secrets.k",))))
    action = Action("agent", {"prompt": {"${}": "p"}}, {"p": template})
    run = begin(step("a", action=action, session="chat")).ok("a.model@1.0", output=answers("yes"))

    (kept,) = run.facts(e.SessionKept)

    assert kept.messages[0] == {"role": "user", "text": "key ***"}


def test_a_fork_takes_over_what_the_agents_of_its_kept_steps_said() -> None:
    run = begin(talker("a"), talker("b", needs=["a"])).ok("a.model@1.0", output=answers("yes"))
    run.ok("b.model@1.0", output=answers("no"))
    kept = (Kept("a", "completed", answers("yes")),)

    fork = History(run.state.workflow).start(forked_from=1, kept=kept, sessions=kept_sessions(run.state, kept))

    (said,) = make_task(fork.state, "b.model@1.0").conversation["session"]
    assert said[1]["text"] == "yes"
