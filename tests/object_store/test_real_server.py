"""The same promises against an S3 server of others: `make objects` brings one, or MULLIGAN_TEST_S3 names it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.s3_server import environment

from mulligan.core.model.artifacts import Artifact
from mulligan.errors import ArtifactGone, ObjectStoreFailed
from mulligan.object_store.bucket import PART_BYTES, Bucket

pytestmark = pytest.mark.nightly
PLACE = "s3://bucket/team/mulligan-1"
_SERVE = """
import time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
input()
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server for as long as the test. `MULLIGAN_TEST_S3` is the Python that has moto, or the URL of a server."""
    named = os.environ.get("MULLIGAN_TEST_S3", "")
    if not named:
        pytest.skip("no S3 server: 'make objects' installs one and runs these tests")
    if "://" in named:
        yield named
        return
    with subprocess.Popen([named, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        lines = (line.strip() for line in server.stdout)
        yield f"http://127.0.0.1:{next(line for line in lines if line.isdigit())}"
        server.stdin.close()
        server.terminate()


@pytest.fixture
def bucket(url: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'mulligan[objects]'")
    for name, value in {**environment(url), "MULLIGAN_OBJECT_TIMEOUT": "30s"}.items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
    return Bucket(PLACE)


def stored(data: bytes, path: Path) -> Artifact:
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    return Artifact(f"17/build/1/1/{digest}/output.json", len(data), digest, place=PLACE)


@pytest.mark.parametrize("size", [0, 1000, 3 * PART_BYTES + 1], ids=["nothing", "small", "in parts"])
def test_what_was_put_comes_back_and_is_listed_and_removed(bucket: Bucket, tmp_path: Path, size: int):
    artifact = stored(os.urandom(size), tmp_path / "file")

    bucket.put_file(artifact, str(tmp_path / "file"))
    bucket.put_file(artifact, str(tmp_path / "file"))
    bucket.fetch_to(artifact, str(tmp_path / "again"))

    assert (tmp_path / "again").read_bytes() == (tmp_path / "file").read_bytes() == bucket.fetch(artifact)
    assert [(one.name, one.size) for one in bucket.records()] == [(artifact.name, size)]
    bucket.remove([artifact.name, "17/build/1/1/other/output.json"])
    assert list(bucket.records()) == []
    with pytest.raises(ArtifactGone):
        bucket.fetch(artifact)


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket, tmp_path: Path):
    artifact = stored(b"content", tmp_path / "file")

    with pytest.raises(ObjectStoreFailed) as caught:
        Bucket("s3://missing/team").put_file(artifact, str(tmp_path / "file"))

    assert (caught.value.failure_code, caught.value.message[-23:]) == ("PERMISSION", "there is no such bucket")


def test_an_upload_whose_process_is_killed_leaves_nothing_and_the_next_is_whole(bucket: Bucket, tmp_path: Path):
    artifact = stored(os.urandom(64 << 20), tmp_path / "file")
    uploading = "from mulligan.object_store.bucket import Bucket; from mulligan.core.model.artifacts import Artifact\n"
    uploading += f"print('begins', flush=True); Bucket({PLACE!r}).put_file({artifact!r}, {str(tmp_path / 'file')!r})"

    with subprocess.Popen([sys.executable, "-c", uploading], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begins\n"
        process.kill()
    left = list(bucket.records())
    bucket.put_file(artifact, str(tmp_path / "file"))

    assert left == []
    assert hashlib.sha256(bucket.fetch(artifact)).hexdigest() == artifact.sha256
