"""`python -m proof.crashes`: everything that can happen to a process, at every moment, and how its run ended.

python -m proof.crashes                                    all sweeps, at every moment: many hours
python -m proof.crashes kills disk --every 7               some of them, at each 7th moment
python -m proof.crashes sqlite/kill:after_commit@12        one trial, again
python -m proof.crashes http_server remote --every 5       the processes around a run, at each 5th moment
python -m proof.crashes --defects                          break the product on purpose, and see that it is found
python -m proof.crashes --flow kills                       the same over a flow: its steps are Python functions
python -m proof.crashes --program race kills               the same over a program: it decides while it runs
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proof.arguments import positive_float, positive_int
from proof.crashes import calls, short_writes
from proof.crashes.defects import DEFECTS, unfound
from proof.crashes.faults import Trial, parsed
from proof.crashes.scenarios import SCENARIOS
from proof.crashes.sweeps import SWEEPS, pairs, swept
from proof.crashes.trials import Theatre, Tried
from proof.crashes.workflow import FLOW, PROGRAMS, YAML

PROGRESS_SECONDS = 20.0
ALL = (*SWEEPS, "pairs")
# What a sweep cannot do without, and whether it is there.
NEEDED = {
    "calls": ("strace", calls.is_there),
    "supervisors": ("strace", calls.is_there),
    "short_writes": ("C compiler", short_writes.is_there),
    **{kind: (scenario.needs, scenario.is_there) for kind, scenario in SCENARIOS.items() if scenario.needs},
}


class TimeUp(Exception):
    """Yield while there is time left."""


class Account:
    """Run trials, print the progress, and report the findings."""

    def __init__(self, theatre: Theatre, minutes: float | None, *, flag: str = "") -> None:
        self._theatre = theatre
        self._flag = flag
        self._began = self._told = time.monotonic()
        self._seconds_max = None if minutes is None else 60 * minutes
        self._slowest = (0.0, "")
        self.held: Counter[tuple[str, str]] = Counter()
        self.found: dict[Trial, list[str]] = {}

    def hold(self, trial: Trial) -> Tried:
        if self._seconds_max is not None and self._seconds > self._seconds_max:
            raise TimeUp
        began = time.monotonic()
        tried = self._theatre.hold(trial)
        self._slowest = max(self._slowest, (time.monotonic() - began, str(trial)))
        if tried.has_happened:
            self.held[trial.store, _kind(trial)] += 1
        if tried.complaints:
            self.found[trial] = tried.complaints
            _say(f"{trial}: " + "\n  ".join(tried.complaints))
        if time.monotonic() - self._told > PROGRESS_SECONDS:
            self._told = time.monotonic()
            _say(f"{sum(self.held.values())} trials in {self._seconds / 60:.1f} minutes, now at {trial}")
        return tried

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def summary(self) -> str:
        total = sum(self.held.values())
        lines = [f"{total} trials in {self._seconds / 60:.1f} minutes: {len(self.found)} went wrong"]
        lines += [f"  {number:6} {store} {kind}" for (store, kind), number in sorted(self.held.items())]
        lines.append("  the slowest took {:.1f}s: {}".format(*self._slowest))
        for trial, complaints in self.found.items():
            lines += [
                f"{trial}",
                *(f"  {one}" for one in complaints),
                f"  again: python -m proof.crashes {self._flag}{trial}",
            ]
        return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    if options.defects:
        return _find_defects()
    with tempfile.TemporaryDirectory(prefix="mulligan-crashes-") as folder, _theatre(folder, options) as theatre:
        flag = f"--program {options.program} " if options.program else "--flow " if options.flow else ""
        account = Account(theatre, options.minutes, flag=flag)
        try:
            for name in options.what:
                _hold(account, name, options)
        except (KeyboardInterrupt, TimeUp):
            _say("ended before it was done")
        print(account.summary())
        return 1 if account.found else 0


def _find_defects() -> int:
    """Break the product in every way that is listed; 1 if a trial does not notice it."""

    def hold(name: str, defect: str) -> list[str]:
        _say(f"{name} with {defect}")
        with (
            tempfile.TemporaryDirectory(prefix="mulligan-crashes-") as folder,
            Theatre(Path(folder), defect=defect) as theatre,
        ):
            return theatre.hold(parsed(name)).complaints

    there = tuple(one for one in DEFECTS if SCENARIOS[parsed(one.trial).troubles[0].kind].is_there())
    missed = unfound(hold, there)
    print("\n".join([f"{len(there) - len(missed)} of {len(there)} deliberate defects were found", *missed]))
    return 1 if missed else 0


def _theatre(folder: str, options: argparse.Namespace) -> Theatre:
    return Theatre(Path(folder), subject=PROGRAMS.get(options.program, FLOW if options.flow else YAML))


def _hold(account: Account, name: str, options: argparse.Namespace) -> None:
    needed, is_there = NEEDED.get(name, ("", lambda: True))
    if not is_there():
        _say(f"{name}: left out, since there is no {needed} here")
    elif name in SWEEPS:
        swept(SWEEPS[name], options.every, account.hold, options.only)
    elif name == "pairs":
        for trial in pairs(options.pairs, options.seed):
            account.hold(trial)
    else:
        account.hold(parsed(name))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m proof.crashes", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="*", default=list(ALL), help=f"{', '.join(ALL)}, or one trial")
    parser.add_argument(
        "--every", type=positive_int, default=1, help="how many moments lie between two trials of a sweep"
    )
    parser.add_argument("--only", default="", help="of the sweeps only what has this in its name: openat, after_commit")
    parser.add_argument("--pairs", type=positive_int, default=200, help="how many double crashes on each store")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--defects", action="store_true", help="break the product on purpose, and see it found")
    parser.add_argument("--flow", action="store_true", help="a flow of Python functions in place of the YAML file")
    parser.add_argument("--program", choices=PROGRAMS, help="a program in place of the YAML file")
    parser.add_argument("--minutes", type=positive_float, help="how long at most")
    return parser.parse_args(words)


def _kind(trial: Trial) -> str:
    return " and ".join(fault.kind for fault in trial.troubles)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
