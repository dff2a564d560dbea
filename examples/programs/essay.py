"""An essay loop: one model writes, another one criticizes, until there is nothing to say or three drafts are written.

mulligan run essay.py -i topic="The Little Prince"
"""

from mulligan import Retry, program, publish_state, step

MODEL = Retry(codes=["CONNECTION", "TIMEOUT", "HTTP_429"], max_retries=3, delay="1s", factor=2)


@step(retry=MODEL, timeout="2m")
def write(topic: str, draft: str, critique: str) -> str:
    """A model that writes: it answers from a script."""
    if not draft:
        return f"{topic} is a book."
    return f"{draft} It has {critique.removeprefix('add ')}."


@step(retry=MODEL, timeout="2m")
def criticize(draft: str) -> str:
    """A model that reads; '' if it is content."""
    return next((f"add {word}" for word in ("an example", "an end") if word not in draft), "")


@program
def essay(topic: str = "The Little Prince", drafts: int = 3):
    draft, critique = "", ""
    for number in range(1, drafts + 1):
        draft = write(topic, draft, critique)
        critique = criticize(draft)
        publish_state(draft=number, critique=critique or "none")
        if not critique:
            break
    return {"drafts": number, "essay": draft}
