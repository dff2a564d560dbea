"""Stands in for a coding agent: it reads what it is told and asked, and makes the one change that it knows for that.

A real agent is asked in the same way. The environment of the worker says which it is, in one line:

    export MULLIGAN_AGENT_CODER='python3 robot.py'
    export MULLIGAN_AGENT_CODER='claude -p --permission-mode acceptEdits'
"""

import json
import os
import sys
from pathlib import Path

# What it is told -> what it replaces in cart.py, by what, and what it answers.
KNOWN = {
    "total([10, 20, 30]) gives 50": ("prices[1:]", "prices", "total() left out the first price"),
    "discounted([100, 100], 10) gives 20": ("* percent //", "* (100 - percent) //", "discounted() took the wrong part"),
    "say what percent is": (
        "def discounted(prices, percent):\n",
        'def discounted(prices, percent):\n    """The total, less so many percent."""\n',
        "discounted() has a docstring now",
    ),
}

told = sys.stdin.read()
old, new, answer = next((change for sign, change in KNOWN.items() if sign in told), ("", "", ""))
if not answer:
    sys.exit("nothing that I know how to mend")

file = Path("cart.py")
file.write_text(file.read_text().replace(old, new, 1))
# Four characters a token, as a rule of thumb. An agent that counts tells what it has counted.
tokens = {"input": len(told) // 4, "output": len(answer) // 4}
Path(os.environ["MULLIGAN_OUTPUT"]).write_text(json.dumps({"content": answer, "tokens": tokens}))
