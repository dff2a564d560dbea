"""The arithmetic of the stages: what one more step adds, counts from a trace, and the table."""

from __future__ import annotations

from .stages import CREATING, ENDING, PER_STEP, READING, REST, SHOWING

_AROUND = (READING, CREATING, SHOWING, ENDING, REST)


def count_calls(lines: list[str]) -> dict[str, float]:
    """The system calls of a trace, together and by name; and the bytes written to files that end in `-wal`."""
    found: dict[str, float] = {"system calls": 0}
    for line in lines:
        name, bracket, rest = line.partition("(")
        if not bracket or not name.isidentifier():
            continue
        found["system calls"] += 1
        found[f"- {name}"] = found.get(f"- {name}", 0) + 1
        if name.startswith("pwrite") and "-wal>" in rest.partition(",")[0]:
            found["bytes of WAL"] = found.get("bytes of WAL", 0) + int(rest.rpartition("= ")[2])
    return found


def per_step(many: dict[str, float], one: dict[str, float], count: int) -> dict[str, float]:
    """What each further step adds."""
    return {name: (value - one.get(name, 0)) / (count - 1) for name, value in many.items()}


def best(found: list[dict[str, float]]) -> dict[str, float]:
    """The smallest of each."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: min(one.get(name, 0.0) for one in found) for name in names}


def table(title: str, wall: dict[str, float], cpu: dict[str, float], counted: dict[str, float]) -> str:
    order = dict.fromkeys((*(stage.name for stage in PER_STEP), *_AROUND))
    rows = [(name, wall[name], cpu[name]) for name in order if wall.get(name)]
    lines = [f"### {title}\n", "| stage of the process that drives the run | wall µs | cpu µs |", "|---|---:|---:|"]
    lines += [f"| {name} | {seconds:,.1f} | {used:,.1f} |" for name, seconds, used in rows]
    lines.append(f"| all stages | {sum(row[1] for row in rows):,.1f} | {sum(row[2] for row in rows):,.1f} |")
    shown = [(name, value) for name, value in counted.items() if not name.startswith("- ") or value >= 0.5]
    lines += ["", "| count | for one step |", "|---|---:|"]
    lines += [f"| {name} | {value:,.1f} |" for name, value in shown]
    return "\n".join(lines) + "\n"
