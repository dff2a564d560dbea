"""Uploads are written to disk while they come, and leave nothing behind if they break off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.api_client import Client, open_client, start_run
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.api.http import uploads
from mulligan.errors import RequestRefused
from mulligan.service.home import DATABASE, Home
from mulligan.service.service import Service

PROTOCOL = {"mulligan-protocol": "1"}


@pytest.fixture(params=["sqlite", POSTGRES])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    home = Home(tmp_path / "home", url)
    with Service(home, "a tester") as service:
        start_run(service)
    opened = open_client(home)
    opened.scope = "worker"
    yield opened
    opened.close()


def files(client: Client) -> list[Path]:
    return [one for one in (client.home.folder / "uploads").rglob("*") if one.is_file()]


def test_what_is_uploaded_is_kept_with_its_hash_and_no_other_file_is_left(client: Client) -> None:
    data = b"0123456789" * 100_000
    query = {"name": "1/fetch/1/1/output.txt", "format": "text"}

    kept = [client.request("POST", "store/artifacts", body=data, query=query, headers=PROTOCOL) for _ in range(2)]
    refused = client.request("POST", "store/artifacts", body=data, query={**query, "name": "x"}, headers=PROTOCOL)

    assert [one.json for one in kept] == ["1/fetch/1/1/output.txt", "1/fetch/1/1/output-2.txt"]
    assert (refused.status, files(client)) == (422, [])
    with Service(client.home, "a tester") as service:
        stored = {one.name: one.size for one in service.reader.store.artifacts.records()}
    assert stored == {one.json: len(data) for one in kept}


def test_an_upload_holds_one_piece_at_a_time_and_leaves_nothing_if_it_breaks_off(tmp_path: Path) -> None:
    sizes = []

    async def pieces(*, breaks: bool) -> AsyncIterator[bytes]:
        for number in range(5):
            yield bytes(200_000)
            (path,) = tmp_path.iterdir()
            sizes.append((number + 1) * 200_000 - path.stat().st_size)
        if breaks:
            raise RequestRefused("the request ended before its body did")

    with pytest.raises(RequestRefused):
        asyncio.run(uploads.receive(tmp_path, pieces(breaks=True)))
    assert list(tmp_path.iterdir()) == []
    found = asyncio.run(uploads.receive(tmp_path, pieces(breaks=False)))

    # What is not on disk yet is less than one piece: nothing is collected.
    assert max(sizes) < 200_000
    assert (found.size, Path(found.path).stat().st_size, Path(found.path).stat().st_mode & 0o777) == (
        10**6,
        10**6,
        0o600,
    )
