"""Sizes and walltimes as they are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.model.clusters.slurm_profile import SlurmProfile, parse_walltime, profile_labels
from mulligan.core.model.text.sizes import SIZE_BYTES_MAX, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("0.6B", 1),
        ("512MiB", 512 * 2**20),
        ("512 mib", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2Gi", 2 * 2**30),
        ("4GB", 4 * 1000**3),
        ("3k", 3000),
        ("2T", 2 * 1000**4),
        ("1024PiB", SIZE_BYTES_MAX),
    ],
)
def test_a_size_has_a_unit_of_a_thousand_or_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "value", ["", "5", 7, None, "GiB", "-1GiB", "0.5B", "0GiB", "1025PiB", "1 G iB", "1EiB", ".5GiB"]
)
def test_anything_else_is_no_size(value: Any) -> None:
    with pytest.raises(ValueError):
        parse_size(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("04:00:00", 14_400.0),
        ("2-12:00:00", 216_000.0),
        ("00:01:05", 65.0),
        ("100:00:00", 360_000.0),
        ("1-00:00:00", 86_400.0),
        ("4h", 14_400.0),
        (90, 90.0),
    ],
)
def test_a_walltime_is_written_as_slurm_does_or_as_a_duration(value: Any, seconds: float) -> None:
    assert parse_walltime(value) == seconds


@pytest.mark.parametrize("value", ["4:00", "00:60:00", "00:00:60", "1-4", "soon", "12345:00:00", " 04:00:00"])
def test_anything_else_is_no_walltime(value: str) -> None:
    with pytest.raises(ValueError):
        parse_walltime(value)


def test_the_labels_of_profiles_are_named_once() -> None:
    profiles = {"a": SlurmProfile(labels=("gpu", "big")), "b": SlurmProfile(labels=("big", "tape"))}

    assert profile_labels(profiles) == ("gpu", "big", "tape")


def test_a_profile_leaves_to_the_cluster_what_it_does_not_say() -> None:
    assert msgspec.to_builtins(SlurmProfile()) == {}
    assert msgspec.convert({}, SlurmProfile) == SlurmProfile(
        partition="", account="", qos="", constraint="", nodes=1, gpus=0, cpus=None
    )
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"partitoin": "x"}, SlurmProfile)
