"""`mulligan slurm submit` and `status`, over a fake Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.commands import mulligan

from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.errors import InputInvalid, LanguageError
from mulligan.service.home import Home
from mulligan.service.host.slurm.client import SlurmJob, parse_job
from mulligan.service.host.slurm.pilots import (
    PilotName,
    PilotSize,
    array_of,
    find_pilots,
    free_numbers,
    job_script,
    parse_name,
    sbatch_options,
    store_identity,
)
from mulligan.service.host.slurm.profiles import find_profiles, parse_profiles

from .fake_slurm import FakeSlurm

NAME = PilotName("0a1b2c3d", "gpu", PilotSize(4, 8192, 1, 2))
STORE = "postgresql://user:hidden@db.example/runs"


@pytest.mark.parametrize(
    "size",
    [PilotSize(), PilotSize(4), PilotSize(None, 512), PilotSize(1, 2, 3, 4), PilotSize(gpus=2), PilotSize(nodes=3)],
)
@pytest.mark.parametrize("profile", ["default", "a-b", "c4", "n2-any", "gpu_big-c1"])
def test_a_name_says_store_profile_and_size(profile: str, size: PilotSize) -> None:
    name = PilotName("0a1b2c3d", profile, size)

    assert parse_name(str(name)) == name


@pytest.mark.parametrize("text", ["mulligan", "mulligan-0a1b2c3d-x", "mulligan-zz-a-c1", "other-0a1b2c3d-a-c1", ""])
def test_other_jobs_are_no_pilots(text: str) -> None:
    assert parse_name(text) is None


def test_numbers_are_the_lowest_free_ones_in_as_few_words_as_possible() -> None:
    assert free_numbers({2, 3}, 4) == [1, 4, 5, 6]
    assert array_of([1, 4, 5, 6, 9]) == "1,4-6,9"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1|2|3",
        "slurm_load_jobs error: Unable to contact slurm controller",
        f"1|N/A|1|RUNNING|x|x|x|1|n1|{NAME}",
        f"{'9' * 5000}|1|1|RUNNING|x|x|x|1|n1|{NAME}",
        f"\u0661|1|1|RUNNING|x|x|x|1|n1|{NAME}",
    ],
)
def test_what_squeue_should_not_say_is_no_job(line: str) -> None:
    assert parse_job(line) is None


def test_fields_of_a_job_that_make_no_sense_are_left_out() -> None:
    found = parse_job(f"7|7|{'9' * 5000}|??|0001-01-01T00:00:00|9999-12-31T23:59:59+00:00|soon|many||{NAME}")

    assert found is not None and find_pilots([found], NAME.store)[0].number == 0
    assert (found.index, found.nodes, found.submitted_at, found.ends_at) == (None, 1, None, None)


@pytest.mark.parametrize("setup", ["# nothing yet", "true # comment", "cat <<END\n}\nEND", "echo 'a\nb'; }; { true"])
def test_a_setup_is_a_group_of_its_own(setup: str, tmp_path: Path) -> None:
    script = job_script(NAME, SlurmProfile(setup=(setup,)), Home(tmp_path, STORE))

    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_percent_sign_in_the_path_of_the_home_is_no_pattern_of_slurm() -> None:
    options = sbatch_options(NAME, [1], SlurmProfile(), Path("/srv/100%j"))

    assert f"--output=/srv/100%%j/slurm/{NAME}.%A_%a.out" in options


def test_options_of_the_profile_come_last_so_that_they_count() -> None:
    profile = SlurmProfile(
        partition="long", account="team", walltime=5400.0, options=("--exclusive", "--gres=gpu:a100:1")
    )

    options = sbatch_options(NAME, [1, 2, 3], profile, Path("/srv/home"))

    assert options == [
        f"--job-name={NAME}",
        "--array=1-3",
        f"--output=/srv/home/slurm/{NAME}.%A_%a.out",
        "--open-mode=append",
        "--export=ALL",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--mem=8192M",
        "--gres=gpu:1",
        "--partition=long",
        "--account=team",
        "--time=90",
        "--signal=B:TERM@20",
        "--exclusive",
        "--gres=gpu:a100:1",
    ]


def test_a_script_has_no_secret_and_puts_the_worker_in_the_place_of_the_shell() -> None:
    profile = SlurmProfile(labels=("gpu", "big"), setup=("module load cuda",), tasks=1)

    script = job_script(NAME, profile, Home(Path("/srv/home"), STORE), python="/opt/python")

    assert "hidden" not in script
    assert "postgresql" not in script
    assert script.index("module load cuda") < script.index("exec ")
    last = "worker --idle-exit 90s --home /srv/home --labels gpu,big --tasks 1 --nodes 2"
    assert f'exec "${{program[@]}}" {last} "${{limit[@]}}"' in script


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (STORE, "postgresql://someone@db.example:5432/runs"),
        (STORE, "postgresql://user@db.example/runs?passfile=/srv/user/password"),
    ],
)
def test_a_store_is_the_same_for_every_user_of_it(one: str, other: str) -> None:
    assert store_identity(Home(Path("/a"), one)) == store_identity(Home(Path("/b"), other))


def test_schemas_and_databases_are_stores_of_their_own() -> None:
    urls = [STORE, f"{STORE}2", f"{STORE}?options=-csearch_path%3Da", f"{STORE}?options=-csearch_path%3Db"]

    assert len({store_identity(Home(Path("/a"), url)) for url in urls}) == 4


# -- profiles ---------------------------------------------------------------------------------------------------------


def test_a_file_of_profiles_is_checked_as_a_workflow_file_is() -> None:
    text = '[slurm.default]\nwalltime = "1h"\n\n[slurm.gpu]\nwalltme = "4h"\noptions = ["--array=5"]\n'

    with pytest.raises(LanguageError) as caught:
        parse_profiles(text, "mulligan.toml")

    assert [(one.code, one.line, one.hint) for one in caught.value.problems] == [
        ("language.unknown_key", 5, "did you mean 'walltime'?"),
        ("language.slurm", 6, "say how many pilots to submit: mulligan slurm submit N"),
    ]


def test_keys_without_a_profile_are_refused_with_the_line_that_is_missing() -> None:
    with pytest.raises(LanguageError) as refused:
        parse_profiles('[slurm]\npartition = "long"\n', "mulligan.toml")

    assert "mulligan.toml:2:1: 'partition' belongs to a profile, and [slurm] names none" in str(refused.value)
    assert "write [slurm.default] above it" in str(refused.value)


def test_a_file_that_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(LanguageError) as caught:
        parse_profiles("[slurm.default]\npartition = main\n", "mulligan.toml")

    assert (caught.value.problems[0].line, caught.value.problems[0].code) == (2, "config.invalid")


def test_profiles_come_from_the_named_file_the_folder_or_the_user(folder: Path) -> None:
    def written(path: Path, partition: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'[slurm.default]\npartition = "{partition}"\n')
        return path

    environ = {"HOME": str(folder / "user")}

    assert find_profiles(folder, {}, "", environ).get("default") == SlurmProfile()
    written(folder / "user/.config/mulligan/slurm.toml", "of_user")
    assert find_profiles(folder, {}, "", environ).get("default").partition == "of_user"
    written(folder / "mulligan.toml", "of_folder")
    assert find_profiles(folder, {}, "", environ).get("default").partition == "of_folder"
    named = {**environ, "MULLIGAN_SLURM_PROFILES": str(written(folder / "other.toml", "named"))}
    assert find_profiles(folder, {}, "", named).get("default").partition == "named"
    of_workflow = {"default": SlurmProfile(partition="of_workflow")}
    assert find_profiles(folder, of_workflow, "w.yaml", named).get("default").partition == "of_workflow"


def test_a_file_that_the_variable_names_must_be_there(folder: Path) -> None:
    with pytest.raises(InputInvalid, match="which is not a file"):
        find_profiles(folder, {}, "", {"MULLIGAN_SLURM_PROFILES": str(folder / "none.toml")})


def job(array_id: int, job_id: int, name: str, index: int = 1) -> SlurmJob:
    return SlurmJob(str(job_id), str(array_id), index, "PENDING", name)


def test_pilots_of_any_size_are_listed_and_of_one_number_the_older_submission_first() -> None:
    sized, unsized = (f"mulligan-0a1b2c3d-default-{size}" for size in ("c4", "any"))
    jobs = [job(105, 105, sized), job(101, 120, sized), job(90, 90, unsized), job(91, 91, sized, 2)]

    found = find_pilots([*jobs, job(1, 1, "mulligan-ffffffff-default-any"), job(2, 2, "other")], "0a1b2c3d")

    assert [(str(one.name.size), one.number, one.job.array_id) for one in found] == [
        ("any", 1, "90"),
        ("c4", 1, "101"),
        ("c4", 1, "105"),
        ("c4", 2, "91"),
    ]


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(folder: Path, store_schema_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    return store_schema_url


def test_pilots_are_submitted_in_one_array_and_later_ones_get_other_numbers(
    slurm: FakeSlurm, folder: Path, store: str
) -> None:
    (folder / "mulligan.toml").write_text('[slurm.default]\ncpus = 2\nmemory = "500MiB"\n')

    first = mulligan("slurm", "submit", 3, "--json")
    slurm.change(2, state="COMPLETED")
    second = mulligan("slurm", "submit", 2, "--tasks", 1)

    assert (first.code, second.code, second.out) == (
        0,
        0,
        "submitted 2 pilots with profile 'default': Slurm job 104\n",
    )
    assert first.json["numbers"] == [1, 2, 3]
    assert [call[3] for call in slurm.calls("sbatch")] == ["--array=1-3", "--array=2,4"]
    assert [number for _, number in slurm.active] == [1, 2, 3, 4]
    assert "--tasks 1" in slurm.jobs[-1]["script"]
    assert slurm.jobs[0]["environ"]["MULLIGAN_STORE"] == store


def test_pilots_of_another_store_are_not_ours(slurm: FakeSlurm, folder: Path, store: str) -> None:
    mulligan("slurm", "submit", 2)
    for number in (1, 2):
        slurm.change(number, name="mulligan-00000000-default-any")

    mulligan("slurm", "submit", 1)

    assert slurm.calls("sbatch")[-1][3] == "--array=1"
    assert [one["job_id"] for one in mulligan("slurm", "status", "--json").json["pilots"]] == ["103_1"]


def test_status_lists_pilots_with_their_state(slurm: FakeSlurm, folder: Path, store: str) -> None:
    (folder / "w.yaml").write_text("slurm: {big: {cpus: 8, nodes: 2}}\nsteps: [{step: a, shell: make}]\n")
    mulligan("slurm", "submit", 2, "--profile", "big", "--file", "w.yaml")
    slurm.change(1, state="RUNNING", node="n7", ends="2036-01-01T00:00:00")

    said = mulligan("slurm", "status")

    lines = [line.split() for line in said.out.splitlines()]
    assert lines[1][:4] == ["101_1", "big", "running", "n7"]
    assert lines[2][:3] == ["101_2", "big", "pending"]


def test_status_says_why_no_profile_takes_a_task(slurm: FakeSlurm, folder: Path, store: str) -> None:
    (folder / "w.yaml").write_text(
        "slurm: {big: {cpus: 8, labels: [gpu]}}\n"
        "steps: [{step: a, shell: make}, {step: b, shell: make, resources: {labels: [fpga]}}]\n"
    )
    mulligan("run", "w.yaml", "--detach")

    # The process in the background queues both steps with its first turn.
    said = next(shown for shown in iter(lambda: mulligan("slurm", "status"), None) if shown.out)
    with_file = mulligan("slurm", "status", "--file", "w.yaml", "--json").json

    assert said.out.splitlines()[-1] == "  without pilots: no profile has label 'fpga'"
    assert [one["reason"] for one in with_file["unmet"]] == ["no profile has label 'fpga'"]


def test_variables_of_a_job_around_it_do_not_reach_the_new_one(
    slurm: FakeSlurm, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "500")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SBATCH_ARRAY_INX", "5")
    monkeypatch.setenv("SBATCH_PARTITION", "long")

    mulligan("slurm", "submit", 1)

    given = slurm.jobs[0]["environ"]
    assert {name for name in given if name.startswith(("SLURM_", "SBATCH_"))} == {
        "SLURM_CONF",
        "SLURM_TIME_FORMAT",
        "SBATCH_PARTITION",
    }


def test_a_store_in_a_file_is_refused_with_the_command_that_helps(slurm: FakeSlurm, folder: Path) -> None:
    said = mulligan("slurm", "submit", 1)

    assert said.code == 1
    assert "is a file of this one (SQLite)" in said.err
    assert "mulligan postgres start" in said.err
    assert slurm.calls("sbatch") == []


def test_pilots_of_a_database_that_does_not_answer_are_not_submitted(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", "postgresql://127.0.0.1:1/runs")

    said = mulligan("slurm", "submit", 1)

    assert (said.code, said.err.startswith("error[store.unavailable]")) == (1, True)
    assert slurm.calls("sbatch") == []


@pytest.mark.parametrize(
    ("sets", "most"), [({}, 3), ({"MULLIGAN_STORE": STORE}, 0), ({"MULLIGAN_STORE": STORE, "PATH": ""}, 3)]
)
def test_auto_does_not_say_that_it_submits_before_it_can(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, sets: dict[str, str], most: int
) -> None:
    for name, value in sets.items():
        monkeypatch.setenv(name, value)

    said = mulligan("slurm", "auto", "--max", most)

    assert said.code != 0
    assert said.err.startswith("error[")


def test_without_slurm_the_missing_program_is_named(folder: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))

    assert "sbatch is not on the PATH" in mulligan("slurm", "submit", 1).err
    assert "squeue is not on the PATH" in mulligan("slurm", "status").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("submit",), "'slurm submit' needs the number of pilots"),
        (("submit", 0), "0 pilots cannot be submitted"),
        (("submit", 1, "--tasks", 0), "--tasks must be at least 1, not 0"),
        (("submit", 1, "--profile", "defualt"), "there is no Slurm profile 'defualt'"),
        (("status", 3), "'slurm status' has no N"),
        (("drain", "--max", 3), "'slurm drain' has no --max"),
        (("auto",), "'slurm auto' needs to know how many pilots there may be"),
        (("auto", "--max", 0), "--max 0 is not possible"),
        (("auto", "--max", 1, "--every", "0.1s"), "--every 0.1s is too often"),
        (("start",), "unknown subcommand 'start' of slurm"),
    ],
)
def test_what_makes_no_sense_is_refused(slurm: FakeSlurm, store: str, words: tuple[object, ...], message: str) -> None:
    said = mulligan("slurm", *words)

    assert said.code == 2
    assert message in said.err


def test_a_refusal_of_slurm_is_shown_in_its_own_words(slurm: FakeSlurm, store: str) -> None:
    slurm.refuse(
        "sbatch",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
    )

    said = mulligan("slurm", "submit", 1)

    assert said.code == 1
    assert "sbatch: Invalid account or account/partition combination specified" in said.err
    assert "write mulligan.toml with [slurm.default]" in said.err


@pytest.mark.parametrize(
    ("sentence", "hint"),
    [
        ("Invalid partition name specified", "change the profile 'default' in '{file}'\n"),
        (
            "More processors requested than permitted",
            "change the profile 'default' in '{file}'; what the cluster has: ",
        ),
        ("QOSMaxSubmitJobPerUserLimit", "a limit of the cluster is reached: submit fewer"),
    ],
)
def test_a_refusal_of_slurm_says_what_to_change(
    slurm: FakeSlurm, folder: Path, store: str, sentence: str, hint: str
) -> None:
    file = folder / "mulligan.toml"
    file.write_text('[slurm.default]\npartition = "long"\n')
    slurm.refuse("sbatch", f"sbatch: error: Batch job submission failed: {sentence}\n")

    assert hint.format(file=file) in mulligan("slurm", "submit", 1).err


def test_of_two_pilots_with_one_number_the_younger_one_is_cancelled(slurm: FakeSlurm, store: str) -> None:
    mulligan("slurm", "submit", 1)
    mulligan("slurm", "submit", 1)
    slurm.change(2, index=1)

    mulligan("slurm", "submit", 1)

    assert [(job["job_id"], job["index"], job["state"]) for job in slurm.jobs] == [
        (101, 1, "PENDING"),
        (102, 1, "CANCELLED"),
        (103, 2, "PENDING"),
    ]


def test_a_file_of_profiles_that_is_nested_too_deeply_is_refused_in_words() -> None:
    with pytest.raises(LanguageError, match="nested too deeply"):
        parse_profiles("a = " + "[" * 3000, "slurm.toml")
