"""An expense that somebody approves: small ones at once, others by a person, who has a week.

mulligan run expense.py -i amount=120
mulligan approve 1 approve --reason "with receipt"
"""

from services import request

from mulligan import Rejected, approve, program, step


@step(retry=3)
def register(who: str, amount: int) -> str:
    return request(f"register {amount} of {who}")


@step(retry=3)
def pay(expense: str, amount: int) -> str:
    return request(f"pay {amount} for {expense}")


@step(retry=3)
def notify(who: str, text: str) -> None:
    request(f"write to {who}: {text}")


@program
def expense(who: str = "ann", amount: int = 120):
    number = register(who, amount)
    if amount > 50:
        try:
            approve(f"pay {amount} to {who}?", timeout="7d")
        except Rejected as rejected:
            notify(who, f"{number} is not paid: {rejected.code}")
            return {"paid": 0}
    pay(number, amount)
    return {"paid": amount}
