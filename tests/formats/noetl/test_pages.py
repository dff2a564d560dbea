"""Playbooks that walk pages and put what they find somewhere, in each way in which that was ever written."""

from __future__ import annotations

from .playbooks import older, ran

# Three pages of numbers, by an API that is a function.
API = "result = {'data': [page, page * 10], 'paging': {'page': page, 'hasMore': page < 3}}"
ALL = [1, 10, 2, 20, 3, 30]


def test_a_list_of_retries_walks_pages_and_tries_again_what_failed():
    run = ran(
        older(f"""
        workflow:
          - step: start
            tool:
              kind: python
              args: {{page: 1}}
              code: "import os\\nif page == 2 and not os.environ.get('MULLIGAN_RETRY'): raise TimeoutError\\n{API}"
              retry:
                - when: "{{{{ error.kind == 'timeout' }}}}"
                  then: {{max_attempts: 2, initial_delay: 0}}
                - when: "{{{{ response.paging.hasMore }}}}"
                  then:
                    max_attempts: 10
                    next_call: {{args: {{page: "{{{{ response.paging.page + 1 }}}}"}}}}
                    collect: {{strategy: append, path: data, into: pages}}
            next: end
        """)
    )

    assert run["status"] == "completed"
    assert run["steps"]["start"]["attempts"] == 2
    assert run["steps"]["start"]["output"]["result"]["data"] == ALL


def test_the_oldest_dialect_walks_pages_while_there_are_more():
    run = ran(
        older(f"""
        workflow:
          - step: start
            type: python
            args: {{page: 1}}
            code: "{API}"
            retry:
              on_success:
                while: "{{{{ response.paging.hasMore == true }}}}"
                max_attempts: 2
                next_call: {{args: {{page: "{{{{ (response.paging.page | int) + 1 }}}}"}}}}
                collect: {{strategy: append, path: data}}
            next: end
        """)
    )

    assert run["steps"]["start"]["output"]["result"]["data"] == ALL[:4]
    assert run["steps"]["start"]["attempts"] == 1


def test_cases_walk_pages_and_lead_on_from_the_last():
    run = ran(
        older(f"""
        workflow:
          - step: start
            tool: {{kind: python, args: {{page: 1}}, code: "{API}"}}
            case:
              - when: "{{{{ event.name == 'call.done' and response.paging.hasMore }}}}"
                then:
                  collect: {{from: data, into: all, mode: extend}}
                  call: {{args: {{page: "{{{{ response.paging.page + 1 }}}}"}}}}
              - when: "{{{{ event.name == 'call.done' }}}}"
                then:
                  - collect: {{from: data, into: all, mode: extend}}
                  - result: {{from: all}}
                  - next: [{{step: sum, args: {{numbers: "{{{{ all }}}}"}}}}]
          - step: sum
            tool: {{kind: python, code: "result = sum(numbers)"}}
            next: end
        """)
    )

    assert run["steps"]["start"]["output"]["result"] == ALL
    assert run["steps"]["sum"]["output"]["result"] == sum(ALL)


def test_a_retry_of_a_case_that_changes_the_call_is_the_next_page():
    run = ran(
        older(f"""
        workflow:
          - step: start
            tool: {{kind: python, args: {{page: 1}}, code: "{API}"}}
            case:
              - when: "{{{{ event.name == 'call.done' and response.paging.hasMore }}}}"
                then: [{{collect: {{path: data}}}}, {{retry: {{args: {{page: "{{{{ response.paging.page + 1 }}}}"}}}}}}]
            next: end
        """)
    )

    assert run["steps"]["start"]["output"]["result"]["data"] == ALL


def test_what_a_step_gave_is_put_into_a_table_before_it_goes_on():
    run = ran(
        older("""
        workflow:
          - step: start
            tool: {kind: duckdb, command: "create or replace table users (id int primary key, name text)"}
            next: load
          - step: load
            tool: {kind: python, code: "result = [{'id': 1, 'name': 'Ann'}, {'id': 2, 'name': 'Bo'}]"}
            case:
              - when: "{{ event.name == 'call.done' and response is defined }}"
                then:
                  - sink: {tool: duckdb, table: users, mode: upsert, key: id, data: "{{ response }}"}
                  - sink: {tool: {kind: duckdb, command: "update users set name = upper(name) where id = 2"}}
                  - next: [{step: read}]
          - step: read
            tool: {kind: duckdb, query: "select name from users order by id"}
            next: end
        """)
    )

    assert run["steps"]["read"]["output"]["result"]["rows"] == [{"name": "Ann"}, {"name": "BO"}]


def test_a_default_of_the_workload_may_be_a_template_and_what_a_run_says_is_none():
    text = older("""
        workload: {host: "h", url: "{{ workload.host }}/v1", all: ["{{ url }}"]}
        workflow:
          - step: start
            tool: {kind: python, args: {url: "{{ workload.url }}", all: "{{ all }}"}, code: "result = [url, all]"}
            next: end
        """)

    assert ran(text)["outputs"]["result"] == ["h/v1", ["h/v1"]]
    assert ran(text, "-i", "url={{ host }}")["outputs"]["result"] == ["{{ host }}", ["{{ host }}"]]
