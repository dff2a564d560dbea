"""`sql` steps in real runs: their failures climb the ladder as those of any other step."""

from __future__ import annotations

from tests.support.runner import Live

PEOPLE = "sqlite:///people.db"


def test_rows_go_from_step_to_step_and_a_query_is_undone_by_another(live: Live) -> None:
    ran = live.run(
        f"""
        inputs: {{name: {{default: "O'Brien"}}}}
        steps:
          - step: fill
            sql:
              connection: {PEOPLE}
              query: create table people (name text); insert into people values (${{inputs.name}}), ('Ada')
            undo: {{sql: {{connection: {PEOPLE}, query: drop table people}}}}
          - step: find
            needs: [fill]
            sql: {{connection: {PEOPLE}, query: select name from people order by name, read_only: true}}
          - step: greet
            needs: [find]
            map: {{over: "${{steps.find.output}}", as: person}}
            do: ["echo hello ${{person.name}}"]
          - {{step: fail, needs: [greet], shell: "false"}}
        """
    )

    assert ran.status == "failed"
    assert ran.steps["greet"]["output"]["results"] == ["hello Ada", "hello O'Brien"]
    assert "no such table" in _message(live, f"{{connection: {PEOPLE}, query: select * from people}}")


def _message(live: Live, sql: str) -> str:
    failure = live.run(f"steps: [{{step: look, sql: {sql}}}]").steps["look"]["failure"]
    return str(failure["message"])


def test_many_rows_are_an_artifact_and_another_query_reads_them_all(live: Live) -> None:
    ran = live.run(
        """
        steps:
          - step: many
            sql:
              connection: sqlite://
              query: with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000) select x from n
          - step: add
            needs: [many]
            sql:
              connection: sqlite://
              query: select count(*) as rows, sum(value ->> 'x') as sum from json_each(${steps.many.output})
        """
    )

    assert list(ran.steps["many"]["output"]) == ["$artifact"]
    assert ran.steps["add"]["output"] == [{"rows": 20_000, "sum": 200_010_000}]


def test_a_query_is_a_handler_and_one_that_fails_is_handled(live_file: Live) -> None:
    ran = live_file.run(
        """
        steps:
          - step: ask
            shell: exit 1
            on_failure: {sql: {connection: "sqlite://", query: "select ${error.exit_code} as code"}}
          - step: look
            sql: {connection: "sqlite://", query: select * from nowhere}
            on_failure: {shell: 'echo "$MULLIGAN_ERROR_CODE, ${error.details.sqlite}, ${error.exit_code == null}"'}
        """
    )

    assert (ran.steps["ask"]["recovered"], ran.steps["ask"]["output"]) == (True, [{"code": 1}])
    assert ran.steps["look"]["output"] == "EXCEPTION, SQLITE_ERROR, true"


def test_a_lost_connection_is_tried_again_and_a_constraint_is_not(live_server: Live, schema_url: str) -> None:
    # A sequence does not go back with its transaction: the second try knows that it is one.
    ran = live_server.run(
        f"""
        defaults: {{retry: {{max_retries: 3, delay: 1ms}}}}
        steps:
          - step: make
            sql:
              connection: {schema_url}
              query: create sequence tries; create table people (name text primary key)
          - step: load
            needs: [make]
            sql:
              connection: {schema_url}
              query: |
                insert into people values ('Ada');
                select case when nextval('tries') = 1 then pg_terminate_backend(pg_backend_pid()) end
              rows: none
          - step: load_again
            needs: [load]
            sql: {{connection: {schema_url}, query: "insert into people values ('Ada')"}}
            next: {{to: repair, on: failure, codes: [EXCEPTION]}}
          - {{step: repair, shell: 'echo "${{failure.details.sqlstate}}"'}}
        """
    )

    assert {name: (step["status"], step["attempts"]) for name, step in ran.steps.items()} == {
        "make": ("completed", 1),
        "load": ("completed", 2),
        "load_again": ("failed", 1),
        "repair": ("completed", 1),
    }
    assert ran.steps["load"]["output"] == {"rowcount": 1}
    assert ran.steps["repair"]["output"] == "23505"
    details = ran.steps["load_again"]["failure"]["details"]
    assert (details["sqlstate"], details["table"], details["constraint"]) == ("23505", "people", "people_pkey")
    assert ran.steps["load_again"]["failure"]["message"] == (
        'duplicate key value violates unique constraint "people_pkey"\ndetail: Key (name)=(Ada) already exists.'
    )


def test_a_query_that_takes_too_long_is_ended_and_leaves_nothing_behind(live_file: Live) -> None:
    endless = "with recursive c(x) as (select 1 union all select x + 1 from c) select sum(x) from c"

    ran = live_file.run(
        f"""
        steps:
          - {{step: make, sql: {{connection: {PEOPLE}, query: create table people (name text)}}}}
          - step: load
            needs: [make]
            timeout: 500ms
            sql: {{connection: {PEOPLE}, query: "insert into people values ('Ada'); {endless}"}}
            next: {{to: look, on: failure, codes: [TIMEOUT]}}
          - {{step: look, sql: {{connection: {PEOPLE}, query: select name from people}}}}
        """
    )

    assert ran.steps["load"]["failure"]["code"] == "TIMEOUT"
    assert ran.steps["look"]["output"] == []
