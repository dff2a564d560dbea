"""NoETL: `workflow` translates its playbooks, `action` and `runtime` carry out their steps, `log` writes its events.

Nothing is imported here: a worker that runs a step does not load what reads files.
"""
