"""The checkout of a shop: reserve, wait for the payment, then ship step by step, or put everything back.

mulligan run checkout.py --key order-7
mulligan send --key order-7 payment paid
"""

from services import request

from mulligan import StepError, StepFailed, program, publish_state, sleep, step, uuid4, wait_event


@step
def reserve(item: str) -> str:
    if item == "unicorn":
        raise StepError("OUT_OF_STOCK", f"there is no {item} left")
    return request(f"reserve a {item}")


@step
def put_back(item: str) -> None:
    request(f"return the {item}")


@step
def set_status(order: str, status: str) -> None:
    request(f"mark the order as {status}")


@program
def checkout(item: str = "widget", hours: int = 2):
    order = str(uuid4())
    try:
        reserve(item)
    except StepFailed as failed:
        return {"status": failed.code}
    set_status(order, "pending")
    publish_state(status="pending", payment=f"https://pay.example/{order}")
    if wait_event("payment", timeout="1h", default="none") != "paid":
        put_back(item)
        set_status(order, "cancelled")
        return {"status": "cancelled"}
    set_status(order, "paid")
    for hour in range(hours):
        publish_state(status="packing", hours_left=hours - hour)
        sleep("100ms")
    set_status(order, "dispatched")
    publish_state(status="dispatched", hours_left=0)
    return {"status": "dispatched"}
