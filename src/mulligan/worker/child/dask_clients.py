"""The client of Dask that a Python step gets. Runs in the process of the step, whose interpreter may not be ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# How long the scheduler may take to answer.
CONNECT_SECONDS = 10


@contextmanager
def open_client(address: str) -> Iterator[Any]:
    """A client of the scheduler at that address, which is also the default of Dask's collections.

    The step runs beside the threads of the Dask worker, and takes none of them: it may wait for whatever it submits.
    """
    import distributed

    client: Any = distributed.Client(address, timeout=CONNECT_SECONDS)  # type: ignore[no-untyped-call]
    try:
        yield client
    finally:
        client.close()
