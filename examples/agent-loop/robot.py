"""Replaces a coding agent: it reads its prompt, and makes the change that it knows for it.

A real agent is called in the same way. One line in the environment of the worker selects it:

    export MULLIGAN_AGENT_CODER='python3 robot.py'
    export MULLIGAN_AGENT_CODER='claude -p --permission-mode acceptEdits'
"""

import json
import os
import sys
from pathlib import Path

# A part of the prompt -> the text to replace in cart.py, the replacement, and the answer.
KNOWN = {
    "total([10, 20, 30]) gives 50": ("prices[1:]", "prices", "total() left out the first price"),
    "discounted([100, 100], 10) gives 20": ("* percent //", "* (100 - percent) //", "discounted() took the wrong part"),
    "say what percent is": (
        "def discounted(prices, percent):\n",
        'def discounted(prices, percent):\n    """The total, less so many percent."""\n',
        "discounted() has a docstring now",
    ),
}

prompt = sys.stdin.read()
old, new, answer = next((change for sign, change in KNOWN.items() if sign in prompt), ("", "", ""))
if not answer:
    sys.exit("no change is known for this prompt")

file = Path("cart.py")
file.write_text(file.read_text().replace(old, new, 1))
# About four characters per token. A real agent reports the tokens that it has counted.
tokens = {"input": len(prompt) // 4, "output": len(answer) // 4}
Path(os.environ["MULLIGAN_OUTPUT"]).write_text(json.dumps({"content": answer, "tokens": tokens}))
