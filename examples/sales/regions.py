"""What is known of the regions."""

import csv

# How far the total of a day may be from its target.
TOLERANCE = 0.5


def total(rows: list[dict]) -> int:
    return sum(row["pieces"] * row["price"] for row in rows)


def targets(text: str) -> dict[str, int]:
    return {row["region"]: int(row["target"]) for row in csv.DictReader(text.splitlines())}


def oddness(region: str, total: int, target: int) -> str:
    """What is odd about the total of a region; "" if nothing is."""
    if abs(total - target) <= TOLERANCE * target:
        return ""
    return f"{region} has sold for {total}, and {target} was expected."
