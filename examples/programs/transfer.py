"""A money transfer: withdraw, deposit, and give the money back if the deposit is impossible.

mulligan run transfer.py
mulligan run transfer.py -i target=closed
"""

from services import request

from mulligan import Retry, StepError, StepFailed, attempt, program, step

RETRY = Retry(max_retries=3, delay="100ms", factor=2, max_delay="1s")


@step(retry=RETRY, timeout="5s")
def withdraw(account: str, amount: int) -> str:
    if amount > 1000:
        raise StepError("INSUFFICIENT_FUNDS", f"{account} has no {amount}", retryable=False)
    return request(f"withdraw {amount} from {account}")


@step(retry=RETRY, timeout="5s")
def deposit(account: str, amount: int) -> str:
    if account == "closed":
        raise StepError("INVALID_ACCOUNT", f"there is no account {account!r}", retryable=False)
    if attempt() == 1:
        raise StepError("CONNECTION", "the bank does not answer")
    return request(f"deposit {amount} to {account}")


@step(retry=RETRY, timeout="5s")
def refund(account: str, amount: int) -> str:
    return request(f"refund {amount} to {account}")


@program
def transfer(source: str = "alice", target: str = "bob", amount: int = 100):
    withdrawn = withdraw(source, amount)
    try:
        deposited = deposit(target, amount)
    except StepFailed as failed:
        return {"transferred": 0, "why": failed.code, "refund": refund(source, amount)}
    return {"transferred": amount, "withdrawal": withdrawn, "deposit": deposited}
