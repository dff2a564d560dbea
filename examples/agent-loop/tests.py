"""The tests of cart.py: they stop at the first failure, and say what was expected."""

import sys

from cart import discounted, total

CASES = [
    ("total([])", total([]), 0),
    ("total([10, 20, 30])", total([10, 20, 30]), 60),
    ("discounted([100, 100], 10)", discounted([100, 100], 10), 180),
]

for call, found, expected in CASES:
    if found != expected:
        sys.exit(f"cart.py: {call} gives {found}, expected {expected}")
print(f"{len(CASES)} tests passed")
