"""`python -m proof.crashes.pilot POINT NTH MET WORDS…`: `mulligan WORDS…` that dies at a moment, in a job of Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

from mulligan.cli import main
from mulligan.ports import fault_listeners
from proof.crashes import boundaries
from proof.crashes.forked_processes import Moment

if __name__ == "__main__":
    point, nth, met, *words = sys.argv[1:]
    if point:
        boundaries.install(point)
        fault_listeners.append(Moment(point, int(nth), Path(met)).passed)
    sys.argv = ["mulligan", *words]
    main.main()
