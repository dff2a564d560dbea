"""`deploy/`: what it names is in the product, and what can be checked without an engine for it is right."""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from mulligan.core.model.text.durations import parse_duration
from mulligan.core.model.workflow import CANCEL_GRACE_SECONDS

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DOCUMENTS: list[dict[str, Any]] = [
    document
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text("utf-8"))
]
# How long a worker takes after the grace of its steps: copying logs, giving leases back, a slow database.
SHUT_DOWN_SECONDS = 20


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [document for document in DOCUMENTS if document["kind"] == kind]
    return found


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, continued lines joined."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text("utf-8").splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word
    ]


def refuse_unknown_words(words: list[str]) -> None:
    """The words of a command line of ours: its command and its options are in the table of completion."""
    rows = [
        line.split("\t") for line in (ROOT / "src/mulligan/cli/words/completion.tsv").read_text("utf-8").splitlines()
    ]
    command, *options = words
    known = {option for name, written, *_ in rows if name == command for option in written.split()}
    assert known, command
    assert {word for word in options if word.startswith("-")} - known == set()


def unknown_variables(names: set[str]) -> set[str]:
    source = "".join(file.read_text("utf-8") for file in (ROOT / "src/mulligan/service").rglob("*.py"))
    return {name for name in names if name.startswith("MULLIGAN_") and f'"{name}"' not in source}


# -- Kubernetes ------------------------------------------------------------------------------------------------------


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("Deployment")["spec"]["template"]["spec"]
    return spec


def test_the_container_runs_a_command_that_there_is() -> None:
    (container,) = pod()["containers"]

    refuse_unknown_words(container["args"])
    assert unknown_variables({one["name"] for one in container["env"]}) == set()


def test_a_pod_may_not_do_more_than_a_worker_needs() -> None:
    (container,) = pod()["containers"]

    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert {pod()["automountServiceAccountToken"], of_kind("ServiceAccount")["automountServiceAccountToken"]} == {False}
    assert of_kind("Role")["rules"] == []


def test_what_a_worker_writes_to_is_a_volume() -> None:
    (container,) = pod()["containers"]
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    home = next(one["value"] for one in container["env"] if one["name"] == "MULLIGAN_HOME")

    assert {home, "/tmp", "/work"} <= mounted
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod()["volumes"]}


def test_a_pod_has_the_time_that_a_worker_takes_to_stop() -> None:
    assert pod()["terminationGracePeriodSeconds"] >= CANCEL_GRACE_SECONDS + SHUT_DOWN_SECONDS


def test_everything_refers_to_what_there_is() -> None:
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    account = of_kind("ServiceAccount")["metadata"]["name"]

    assert of_kind("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert (pod()["serviceAccountName"], of_kind("RoleBinding")["subjects"][0]["name"]) == (account, account)
    assert of_kind("RoleBinding")["roleRef"]["name"] == of_kind("Role")["metadata"]["name"]


def test_the_secret_is_named_and_not_written() -> None:
    text = "".join(file.read_text("utf-8") for file in (DEPLOY / "kubernetes").glob("*.yaml"))

    assert "Secret" not in {document["kind"] for document in DOCUMENTS}
    assert "kubectl create secret generic mulligan-store --from-literal=url=" in text
    store = next(one for one in pod()["containers"][0]["env"] if one["name"] == "MULLIGAN_STORE")
    assert store["valueFrom"] == {"secretKeyRef": {"name": "mulligan-store", "key": "url"}}


# -- Compose ---------------------------------------------------------------------------------------------------------


COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"] == "mulligan"}


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_there_is_and_has_time_to_stop(name: str) -> None:
    found = OURS[name]

    refuse_unknown_words(found["command"])
    assert unknown_variables(set(found["environment"])) == set()
    assert parse_duration(found["stop_grace_period"]) >= CANCEL_GRACE_SECONDS + SHUT_DOWN_SECONDS
    assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])


def test_what_a_service_writes_to_is_a_volume_of_its_own_or_a_shared_one() -> None:
    for found in OURS.values():
        mounted = [one.partition(":") for one in found["volumes"]]
        places = {place for _, _, place in mounted} | {one.partition(":")[0] for one in found["tmpfs"]}
        assert {found["environment"]["MULLIGAN_HOME"], "/tmp", "/work"} <= places
        assert {name for name, _, _ in mounted} <= set(COMPOSE["volumes"])


def test_only_this_host_reaches_the_server_and_nothing_else_is_published() -> None:
    published = {name: one["ports"] for name, one in COMPOSE["services"].items() if "ports" in one}

    assert published == {"server": ["127.0.0.1:8642:8642"]}


def test_no_password_is_written_into_the_compose_file() -> None:
    postgres = COMPOSE["services"]["postgres"]

    assert COMPOSE["secrets"] == {"postgres-password": {"file": "../secrets/postgres-password"}}
    assert "/secrets/" in (ROOT / ".gitignore").read_text("utf-8").split()
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/postgres-password"
    assert [one["environment"]["MULLIGAN_STORE"] for one in OURS.values()] == [
        "postgresql://mulligan@postgres/mulligan"
    ] * 2


# -- systemd ---------------------------------------------------------------------------------------------------------


def service(unit: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text("utf-8"))
    return dict(parser["Service"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_that_there_is_and_gives_it_time_to_stop(unit: Path) -> None:
    found = service(unit)
    program, *words = shlex.split(found["ExecStart"])

    refuse_unknown_words(words)
    assert (Path(program).name, unit.stem) == ("mulligan", f"mulligan-{words[0]}")
    assert unknown_variables({found["Environment"].partition("=")[0]}) == set()
    assert parse_duration(found["TimeoutStopSec"]) >= CANCEL_GRACE_SECONDS + SHUT_DOWN_SECONDS
    # A worker stops its steps itself, and one step that the kernel kills does not stop it.
    assert (found["KillMode"], found["OOMPolicy"], found["Delegate"]) == ("mixed", "continue", "yes")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_every_line_of_a_unit(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text("utf-8").replace("/opt/mulligan/bin/mulligan", "/bin/true"), "utf-8")

    said = subprocess.run([program, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)

    ours = [line for line in (said.stdout + said.stderr).splitlines() if unit.name in line]
    assert ours == []


# -- the image -------------------------------------------------------------------------------------------------------


def test_what_the_image_copies_is_there_and_sent_to_the_build() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").split()
    sent = [line[1:] for line in ignored if line.startswith("!")]
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]

    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, pattern) or name.startswith(f"{pattern}/") for pattern in sent), name


def test_the_image_installs_pins_with_hashes_and_runs_as_nobody_special() -> None:
    found = instructions()
    installs = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    entry, command = (json.loads(next(rest for word, rest in found if word == name)) for name in ("ENTRYPOINT", "CMD"))

    assert "--require-hashes -r requirements/image.txt" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1] and len(installs) == 2
    assert [rest for word, rest in found if word == "USER"] == ["10001:10001"]
    assert entry == ["mulligan"]
    refuse_unknown_words(command)


def test_the_user_of_the_image_is_the_one_of_the_pods() -> None:
    (user,) = [rest for word, rest in instructions() if word == "USER"]

    assert user == f"{pod()['securityContext']['runAsUser']}:{pod()['securityContext']['runAsGroup']}"
