"""Which actions do something twice if they are repeated, as far as it can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.analysis.coverage.side_effects import effect_of_another_visit, side_effect
from mulligan.core.model.workflow import Action, Map
from mulligan.testing.history import command, expression, handler, step, workflow


def shell(text: str) -> str:
    return side_effect(Action("shell", {"text": text}))


@pytest.mark.parametrize(
    "text",
    [
        "curl -X POST https://pay.example/charges",
        "curl -sS --request PATCH https://x.example/y",
        "curl --fail --json @a.json https://x.example",
        "curl -d name=x https://x.example",
        "curl --fail \\\n  --data-binary @a https://x.example",
        "wget --post-data=a=b https://x.example",
        "cd /job && sbatch --parsable job.sh",
        "qsub job.pbs",
        'mail -s "done" someone@example.org < report',
        "aws sns publish --topic-arn x --message y",
        "psql -c 'insert into a select * from b'",
    ],
)
def test_a_command_that_does_something_twice_is_recognized(text: str) -> None:
    assert shell(text)


@pytest.mark.parametrize(
    "text",
    [
        "curl https://x.example",
        "curl -X PUT -d @a https://x.example",
        "curl -G -d q=1 https://x.example",
        "curl -fsSL -o data.csv https://x.example/-d/file",
        'curl -X POST -H "Idempotency-Key: $MULLIGAN_IDEMPOTENCY_KEY" https://x.example',
        "squeue --me",
        "./mailer.sh",
        "echo mail the report",
        "psql -c 'select 1'",
        "psql -c 'insert into a values (1) on conflict do nothing'",
        "grep 'insert into' dump.sql",
        "make test",
    ],
)
def test_a_command_that_may_be_repeated_is_left_alone(text: str) -> None:
    assert shell(text) == ""


@pytest.mark.parametrize(
    ("params", "is_found"),
    [
        ({"method": "POST"}, False),  # the engine sends a key of its own
        ({"method": "POST", "headers": {"Idempotency-Key": None}}, True),
        ({"method": "PATCH", "headers": {"idempotency-key": None}}, True),
        ({"method": "POST", "headers": {"Idempotency-Key": "a"}}, False),
        ({"method": "PUT", "headers": {"Idempotency-Key": None}}, False),
        ({}, False),
    ],
)
def test_a_request_counts_if_its_idempotency_key_is_switched_off(params: dict[str, Any], is_found: bool) -> None:
    assert bool(side_effect(Action("http", {"url": "https://x.example", **params}))) is is_found


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ("insert into a values (1)", True),
        ("INSERT INTO a (x)\nSELECT x FROM b", True),
        ("insert into a values (1) on conflict (x) do update set y = 2", False),
        ("insert or ignore into a values (1)", False),
        ("insert into a select * from b where not exists (select 1)", False),
        ("delete from a; insert into a select * from b", False),
        ("update a set total = total + 1 where id = 3", True),
        ("update a set state = 'done' where id = 3", False),
        ("select * from a", False),
    ],
)
def test_a_query_counts_if_it_adds_to_what_is_there(query: str, is_found: bool) -> None:
    assert bool(side_effect(Action("sql", {"query": query}))) is is_found


# -- a whole step, once more -----------------------------------------------------------------------------------------

POST = Action("http", {"url": "https://x.example", "method": "POST"})


@pytest.mark.parametrize(
    ("fields", "effect"),
    [
        ({}, ""),
        ({"undo": command("release")}, "has an undo"),
        ({"on_lost": "fail"}, "has on_lost: fail"),
        ({"action": Action("approve", {"message": "go?"})}, "asks a person"),
        ({"action": Action("agent", {"provider": "some"})}, "asks an agent"),
        # Another visit has another key than the first, so the server does not recognize the request.
        ({"action": POST}, "sends a POST"),
        ({"action": Action("http", {"url": "https://x.example", "method": "delete"})}, "sends a DELETE"),
        ({"action": Action("http", {"url": "https://x.example"})}, ""),
        ({"action": Action("sql", {"query": "update a set state = 'done'"})}, "writes to a database"),
        ({"action": Action("sql", {"query": ["select 1", "drop table a"]})}, "writes to a database"),
        ({"action": Action("sql", {"query": "select replace(x, 'a', 'b') from a for update"})}, ""),
        ({"action": Action("shell", {"text": "sbatch job.sh"})}, "submits a batch job"),
        ({"on_success": (command("sbatch tell.sh"),)}, "submits a batch job"),
        # A handler runs only if the step fails.
        ({"on_failure": handler("sbatch fix.sh")}, ""),
    ],
)
def test_what_a_step_does_once_more_when_it_runs_again(fields: dict[str, Any], effect: str) -> None:
    flow = workflow(step("a", **fields))

    assert effect_of_another_visit(flow.steps[0], flow) == effect


def test_the_commands_of_items_and_the_steps_of_a_called_workflow_count() -> None:
    child = workflow(step("deep", action=POST))
    flow = workflow(
        step("items", map=Map(over=expression("list")), do=(command("one"), command("sbatch job.sh"))),
        step("call", action=Action("workflow", {"file": "child.yaml"})),
        children={"child.yaml": child},
    )

    assert [effect_of_another_visit(one, flow) for one in flow.steps] == ["submits a batch job", "sends a POST"]
