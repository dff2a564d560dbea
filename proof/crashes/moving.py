"""Move a home while a run is driven there, and resume the run at the new place at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mulligan.service.home import Home
from proof.stage import DEADLINE_SECONDS, Stage


def moved(home: Path) -> Path:
    """Where a home is moved to."""
    return home.with_name(f"{home.name}-moved")


class Follower:
    """Resumes the run at the new place of its home as soon as there is one, while the first process may live."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._old, self._new = stage.home.folder, moved(stage.home.folder)
        self._resumed: subprocess.Popen[str] | None = None

    def look(self) -> None:
        if self._resumed is None and self._new.exists():
            self._resumed = self._stage.start("resume", "1", "--json", environment={"MULLIGAN_HOME": str(self._new)})

    def arrive(self) -> list[str]:
        """The first process has ended: from now on the stage has its home at the new place. What is wrong by now."""
        self.look()
        if self._resumed is None:
            return []
        _, said = self._resumed.communicate(timeout=DEADLINE_SECONDS)
        self._stage.home = Home(self._new)
        self._stage.environment["MULLIGAN_HOME"] = str(self._new)
        wrong = [f"'{self._old}' was made again: {sorted(self._old.rglob('*'))}"] if self._old.exists() else []
        code = self._resumed.returncode
        # A run that failed, or waits for a person, was not refused: its outcome is checked later.
        return wrong if code >= 0 else [*wrong, f"'resume' at the new place was ended by {-code}: {said}"]
