"""The pytest plugin, as the tests of a user see it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest

import mulligan
from mulligan import Workflow
from mulligan.language import load_text
from mulligan.testing import history, rehearsal

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True, scope="module")
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load what a run needs: pytester forgets modules that its sessions load, and some cannot be loaded twice."""
    load_text("steps: [{step: a, shell: 'true', when: inputs.x == 1}]\ninputs: {x: {type: integer}}")
    mulligan.run(Workflow("a").step("a", shell="true"), home=tmp_path_factory.mktemp("home"), show=False).explain()
    assert history and rehearsal


DEPLOY = """
name: deploy
inputs: {target: {enum: [staging, prod], default: staging}}
steps:
  - step: build
    shell: ./build.sh ${inputs.target}
    retry: {rules: [{exit_codes: [75], max_retries: 2, delay: 1h}]}
  - {step: announce, needs: [build], when: inputs.target == 'prod', shell: "true"}
"""


def written(pytester: pytest.Pytester, text: str) -> None:
    (pytester.path / "deploy.yaml").write_text(DEPLOY, encoding="utf-8")
    pytester.makepyfile(textwrap.dedent(text))


def test_a_program_is_led_to_its_own_fixture(rehearse: Any, history: Any) -> None:
    decides = mulligan.program(lambda: 1)

    for fixture in (rehearse, history):
        with pytest.raises(TypeError, match="fixture 'rehearse_program'"):
            fixture(decides)


def test_the_fixtures_run_workflows_in_a_home_of_the_test_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_HOME", "/nowhere")
    monkeypatch.setenv("MULLIGAN_STORE", "postgresql://nobody@nowhere.invalid/none")
    monkeypatch.setenv("MULLIGAN_BY", "somebody")
    written(
        pytester,
        """
        import os
        from pathlib import Path

        import mulligan
        from mulligan import Workflow

        HELLO = Workflow("hello").step("greet", shell="echo hello").outputs(said="${steps.greet.output}")

        def test_a_real_run(mulligan_home, tmp_path):
            run = mulligan_home.run(HELLO)
            assert (run.status, run.outputs) == ("completed", {"said": "hello"})
            assert mulligan_home.folder == tmp_path / ".mulligan"

        def test_each_test_has_its_own_and_the_program_under_test_uses_it(mulligan_home):
            assert mulligan_home.runs() == []
            run = mulligan.run(HELLO)
            assert mulligan_home.get("latest") == run
            assert os.environ["MULLIGAN_HOME"] == str(mulligan_home.folder)
            assert "MULLIGAN_STORE" not in os.environ

        def test_the_environment_is_as_it_was():
            assert os.environ["MULLIGAN_HOME"] == "/nowhere"

        def test_a_history(history):
            run = history("deploy.yaml", target="prod")
            run.fail("build", exit_code=75).wait(3600).ok("build", output="v1").ok("announce")
            assert run.status == "completed"

        def test_a_history_fills_in_defaults_and_takes_what_a_program_has(history):
            run = history(mulligan.load("deploy.yaml")).ok("build")
            assert run.statuses == {"build": "completed", "announce": "skipped"}
            assert history(HELLO).queued == ["greet"]

        def test_a_rehearsal(rehearse, tmp_path):
            script = tmp_path / "build.sh"
            script.write_text("#!/bin/sh\\necho built for $1\\n")
            script.chmod(0o755)
            assert rehearse("deploy.yaml", folder=tmp_path)["build"].output == "built for staging"
            assert rehearse("deploy.yaml", fakes={"build": {"fail": "TIMEOUT"}}).status == "failed"
        """,
    )

    done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")

    done.assert_outcomes(passed=6)


def test_below_a_test_that_failed_stand_the_stories_of_its_runs(pytester: pytest.Pytester) -> None:
    written(
        pytester,
        """
        from mulligan import Workflow

        def test_a_real_run(mulligan_home):
            flow = Workflow("broken").step("build", shell="echo no disk >&2; exit 4")
            assert mulligan_home.run(flow).status == "completed"

        def test_a_history(history):
            run = history("deploy.yaml").fail("build", exit_code=75)
            assert run.status == "completed"

        def test_one_that_passes_says_nothing(history):
            history("deploy.yaml").ok("build")
        """,
    )

    done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")

    done.assert_outcomes(failed=2, passed=1)
    done.stdout.fnmatch_lines_random(
        [
            "*- mulligan run 1 of 'broken': failed -*",
            "* build *failed with EXIT_NONZERO 4: no disk*",
            "*- mulligan history of 'deploy': running -*",
            "build: attempt 1 failed with EXIT_NONZERO 75",
            "build: retry 1 of 2 *",
            "steps: build backing_off, announce waiting",
        ]
    )
    assert done.stdout.str().count("mulligan history of") == 1


def test_a_flow_runs_in_the_folder_of_the_test_although_its_module_is_elsewhere(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        shop_of_plugin_test="""
        from mulligan import flow, step

        @step
        def count(rows: list) -> int:
            return len(rows)

        @flow
        def shop(rows: list):
            return count(rows)
    """
    )
    written(
        pytester,
        """
        from shop_of_plugin_test import shop

        def test_it(mulligan_home, tmp_path, monkeypatch):
            monkeypatch.chdir(tmp_path)
            assert shop.run([1, 2]).outputs == {"result": 2}
        """,
    )

    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_what_a_fixture_refuses_is_shown_with_what_to_write(pytester: pytest.Pytester) -> None:
    written(
        pytester,
        """
        from mulligan import Workflow

        FLOW = Workflow("w").step("fetch", http={"url": "https://shop.invalid"})

        def test_a_rehearsal(rehearse):
            rehearse(FLOW)

        def test_a_history(history):
            history("deploy.yaml", tagret="prod")
        """,
    )

    done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")

    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines_random(
        ["E *define how it ends: fakes={'fetch': {'output': …}}", "E *did you mean 'target'[?]"]
    )


def test_a_worker_that_a_test_leaves_behind_is_stopped(pytester: pytest.Pytester) -> None:
    written(
        pytester,
        """
        import subprocess, sys
        from pathlib import Path

        def test_it(mulligan_home):
            worker = subprocess.Popen([sys.executable, "-m", "mulligan", "worker"], stderr=subprocess.PIPE, text=True)
            for line in worker.stderr:
                if mulligan_home.workers():
                    break
            Path("pid").write_text(str(worker.pid))
            type(mulligan_home).left = worker

        def test_it_is_gone():
            from mulligan import Home
            with Home.left as left:
                assert left.wait(30) == 0
                assert left.pid == int(Path("pid").read_text())
        """,
    )

    done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-p", "no:xdist")

    done.assert_outcomes(passed=2)


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(mulligan_home): pass")

    done = pytester.runpytest_inprocess("-q", "-p", "no:mulligan", "-p", "no:cacheprovider")

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'mulligan_home' not found"])


def test_a_pytest_that_does_not_use_it_loads_nothing_else() -> None:
    program = """
import pytest, sys
before = {*sys.modules}
import mulligan.pytest_plugin
print(*sorted({*sys.modules} - before))
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["mulligan", "mulligan.pytest_plugin"]
