"""An agent with tools, as a plain loop: the model says which tools it wants, and gets their answers, until it has one.

mulligan run assistant.py -i question="Is it cold in Oslo? Tell Ann."
"""

from services import request

from mulligan import StepError, StepFailed, approve, gather, program, publish_state, step

SCRIPT = [
    {"tools": [{"name": "weather", "city": "Oslo"}, {"name": "weather", "city": "Atlantis"}]},
    {"tools": [{"name": "write_mail", "to": "ann", "text": "It is cold in Oslo."}]},
    {"answer": "It is -4 °C in Oslo. Ann knows. I found no Atlantis."},
]


@step(retry=3, timeout="2m")
def model(messages: list[dict]) -> dict:
    """A model that answers from a script: as many answers as it has given are behind it."""
    return SCRIPT[sum(message["role"] == "model" for message in messages)]


@step(retry=2)
def weather(city: str) -> str:
    if city != "Oslo":
        raise StepError("NO_CITY", f"there is no {city}", retryable=False)
    return "-4 °C"


@step(retry=2)
def write_mail(to: str, text: str) -> str:
    return request(f"write to {to}: {text}")


TOOLS = {"weather": weather, "write_mail": write_mail}


@program
def assistant(question: str = "Is it cold in Oslo? Tell Ann.", turns: int = 10, asks: bool = False):
    messages = [{"role": "user", "content": question}]
    for turn in range(turns):
        said = model(messages)
        messages.append({"role": "model", **said})
        publish_state(turn=turn + 1, wants=[tool["name"] for tool in said.get("tools", [])])
        if "answer" in said:
            return {"answer": said["answer"], "turns": turn + 1}
        calls = [(TOOLS[tool.pop("name")], tool) for tool in said["tools"]]
        if asks and any(tool is write_mail for tool, _ in calls):
            approve("may it write that mail?", timeout="1h")
        for answer in gather((tool.call(**given) for tool, given in calls), failures="return"):
            failed = isinstance(answer, StepFailed)
            messages.append({"role": "tool", "content": f"error: {answer.message}" if failed else answer})
    raise StepError("NO_ANSWER", f"no answer after {turns} turns")
