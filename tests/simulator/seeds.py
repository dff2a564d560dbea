"""Write into test_sabotage.py from which seed each defect shows now: `python -m tests.simulator.seeds`.

What the simulator draws decides which histories show a defect. After a change of it the tests search on from the seed
that they know: for some time, and then they fail.
"""

from __future__ import annotations

import re
from pathlib import Path

from proof.simulator.both_ways import both_ways

from .test_sabotage import FOUND, first_that_shows


def main() -> None:
    """Search for each defect, and write the seed that was found."""
    file = Path(__file__).with_name("test_sabotage.py")
    text = file.read_text(encoding="utf-8")
    with both_ways():
        for row in FOUND:
            sentence, _, _, known, _ = row
            seed, _ = first_that_shows(*row)
            if seed is None:
                print(f"no longer found: {sentence}")
            elif seed != known:
                print(f"{known:5} → {seed:5}  {sentence}")
                of_the_row = re.compile(rf'("{re.escape(sentence)}",\s*\w+,\s*"\w+",\s*){known}\b')
                text = of_the_row.sub(rf"\g<1>{seed}", text, count=1)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
