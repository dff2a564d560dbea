"""One bucket: what is put there comes back as it was, or with a sentence that says what is wrong."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from tests.support.s3_server import S3

from mulligan.core.model.artifacts import Artifact
from mulligan.errors import ArtifactDamaged, ArtifactGone, InputInvalid, ObjectStoreFailed
from mulligan.object_store.bucket import PART_BYTES, Bucket
from mulligan.object_store.places import checked_place

PLACE = "s3://bucket/team/mulligan-1"


def stored(data: bytes, name: str = "17/build/1/1/HASH/output.json") -> Artifact:
    return Artifact(name, len(data), hashlib.sha256(data).hexdigest(), place=PLACE)


def put(tmp_path: Path, data: bytes) -> Artifact:
    path = tmp_path / "file"
    path.write_bytes(data)
    Bucket(PLACE).put_file(artifact := stored(data), str(path))
    return artifact


def failure(work: object) -> ObjectStoreFailed:
    with pytest.raises(ObjectStoreFailed) as caught:
        work()  # type: ignore[operator]
    return caught.value


@pytest.mark.parametrize("size", [0, 7, PART_BYTES + 5], ids=["nothing", "small", "in parts"])
def test_what_was_put_comes_back_as_it_was(s3: S3, tmp_path: Path, size: int):
    data = os.urandom(size)

    artifact = put(tmp_path, data)
    Bucket(PLACE).fetch_to(artifact, str(tmp_path / "again"))

    assert list(s3.objects) == [f"team/mulligan-1/{artifact.name}"]
    assert Bucket(PLACE).fetch(artifact) == data == (tmp_path / "again").read_bytes()
    assert [(one.name, one.size) for one in Bucket(PLACE).records()] == [(artifact.name, size)]


def test_what_is_there_already_is_not_sent_again(s3: S3, tmp_path: Path):
    put(tmp_path, b"content")

    put(tmp_path, b"content")

    assert [verb for verb, _ in s3.requests].count("PUT") == 1


def test_a_part_that_fails_is_sent_again_and_the_others_are_not(s3: S3, tmp_path: Path):
    s3.refuse("PUT", 503, times=1)

    artifact = put(tmp_path, bytes(2 * PART_BYTES + 1))

    assert Bucket(PLACE).fetch(artifact) == bytes(2 * PART_BYTES + 1)
    assert [verb for verb, _ in s3.requests].count("PUT") == 4


def test_a_lost_object_is_named_with_its_place(s3: S3, tmp_path: Path):
    artifact = put(tmp_path, b"content")
    s3.objects.clear()

    with pytest.raises(ArtifactGone) as caught:
        Bucket(PLACE).fetch(artifact)

    assert caught.value.message == f"artifact '{artifact.name}' is gone from '{PLACE}'"


@pytest.mark.parametrize(
    ("data", "problem"), [(b"CONTENT", "its hash does not match"), (b"cont", "it has 4 bytes instead of 7")]
)
def test_changed_content_is_never_given_out(s3: S3, tmp_path: Path, data: bytes, problem: str):
    artifact = put(tmp_path, b"content")
    s3.objects[f"team/mulligan-1/{artifact.name}"] = data

    for read in (Bucket(PLACE).fetch, lambda one: Bucket(PLACE).fetch_to(one, str(tmp_path / "again"))):
        with pytest.raises(ArtifactDamaged) as caught:
            read(artifact)

        assert caught.value.message == f"artifact '{artifact.name}' in '{PLACE}' is damaged: {problem}"
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (403, "PERMISSION", "access is denied"),
        (401, "PERMISSION", "access is denied"),
        (500, "CONNECTION", "it answers with 500"),
        (507, "CONNECTION", "it answers with 507"),
    ],
)
def test_a_refused_write_says_why_and_nothing_of_the_credentials(
    s3: S3, tmp_path: Path, status: int, code: str, reason: str
):
    s3.refuse("PUT", status)

    found = failure(lambda: put(tmp_path, b"content"))

    assert found.failure_code == code
    assert found.message == f"artifact '17/build/1/1/HASH/output.json' cannot be written in '{PLACE}': {reason}"
    assert "secret-of-the-test" not in repr(found.data) and "key-of-the-test" not in repr(found.data)


def test_a_server_that_does_not_answer_is_given_up_in_bounded_time(s3: S3, tmp_path: Path):
    s3.held = frozenset({"HEAD"})
    s3.gate.clear()

    assert failure(lambda: put(tmp_path, b"content")).failure_code == "TIMEOUT"


def test_whoever_has_heartbeats_to_send_waits_for_less_time(s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_OBJECT_TIMEOUT", "10m")
    s3.held = frozenset({"HEAD"})
    s3.gate.clear()

    assert failure(lambda: Bucket(PLACE, 0.1).fetch(stored(b"content"))).failure_code == "TIMEOUT"


def test_a_server_that_is_away_is_given_up_in_bounded_time(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Nobody listens on it: the server of the test has had it to itself.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    assert failure(lambda: put(tmp_path, b"content")).failure_code == "CONNECTION"


def test_a_bucket_that_is_not_there_is_no_reason_to_try_again(s3: S3, tmp_path: Path):
    (tmp_path / "file").write_bytes(b"content")

    found = failure(lambda: Bucket("s3://other/team").put_file(stored(b"content"), str(tmp_path / "file")))

    assert (found.failure_code, found.message.rpartition(": ")[2]) == ("PERMISSION", "there is no such bucket")


def test_an_endpoint_that_is_no_url_is_refused_before_the_library_sees_it(s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:none")

    assert failure(lambda: Bucket(PLACE)).message == "AWS_ENDPOINT_URL is not a URL like https://HOST:PORT"


def test_objects_are_removed_and_one_that_is_gone_is_no_error(s3: S3, tmp_path: Path):
    artifact = put(tmp_path, b"content")

    Bucket(PLACE).remove([artifact.name, "17/build/1/1/HASH/other.json"])

    assert s3.objects == {}


@pytest.mark.parametrize("text", ["s3://bucket", "gs://bucket/a/b", "az://container/x", " s3://bucket/team/ "])
def test_places_that_a_setting_may_name(text: str):
    assert checked_place(text) == text.strip().rstrip("/")


@pytest.mark.parametrize(
    "text", ["", "bucket", "http://bucket/x", "s3://", "s3://b/../x", "s3://bucket/x?y=1", "file:///x", "s3://B_/x"]
)
def test_what_is_no_place_is_refused(text: str):
    with pytest.raises(InputInvalid):
        checked_place(text)


def test_a_setting_with_a_password_is_refused_without_showing_it():
    with pytest.raises(InputInvalid) as caught:
        checked_place("s3://key:hidden@bucket/x")

    assert "hidden" not in caught.value.render()
