"""An agent loop in plain Python: writers beside each other, the first answer counts, a reviewer until it is content.

mulligan run agents.py -i product="a lamp"
"""

import asyncio

from mulligan import program, step


@step(timeout="5m", retry=2)
def write(product: str, style: str) -> str:
    return f"A {style} text about {product}."


@step(timeout="5m", retry=2)
def improve(text: str, missing: list[str]) -> str:
    return f"{text} With {' and '.join(missing)}."


@step
def review(text: str) -> list[str]:
    return [word for word in ("price", "date") if word not in text]


@program
async def agents(product: str, rounds: int = 3):
    tasks = [asyncio.create_task(write(product, style)) for style in ("short", "long")]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()  # its step is cancelled, too
    text = min([task.result() for task in done])
    for _ in range(rounds):
        missing = await review(text)
        if not missing:
            break
        text = await improve(text, missing)
    return {"text": text}
