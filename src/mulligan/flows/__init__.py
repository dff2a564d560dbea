"""Workflows whose steps are functions, and whose data flows by calling them.

    from mulligan import Retry, flow, step

    @step(retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s", factor=2), timeout="1m")
    def fetch(url: str) -> list[dict]: ...

    @flow
    def nightly(url: str):
        return {"rows": fetch(url)}

The function of a flow runs once, to build the workflow. Steps return references there, which become expressions.
What is built is a `language.builder.Workflow`: the same checks, the same graph, the same recovery as a YAML file.

A module of the user imports this package in a warm child, too, which may run under another interpreter. So these
modules import only the standard library, and little of it, until a flow is built.
"""
