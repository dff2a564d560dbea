"""Variables of the environment that commands compute."""

from __future__ import annotations

import os
import subprocess

from mulligan import StepError

_MESSAGE_CHARS_MAX = 500


def compute_variables(commands: dict[str, str]) -> dict[str, str]:
    """Run the command of each variable, and return what it prints. A command can read the variables before its own."""
    computed: dict[str, str] = {}
    for name, command in commands.items():
        ended = subprocess.run(
            ["sh", "-c", command],
            env={**os.environ, **computed},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if ended.returncode:
            said = " ".join(ended.stderr.split())[:_MESSAGE_CHARS_MAX]
            message = f"the command of the variable '{name}' exited with {ended.returncode}"
            raise StepError("ENV_COMMAND_FAILED", f"{message}: {said}" if said else message)
        computed[name] = ended.stdout.rstrip("\n")
    return computed
