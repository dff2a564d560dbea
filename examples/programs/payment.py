"""A payment that another company confirms: the program waits for its callback, and takes a cancellation meanwhile.

mulligan run payment.py --key payment-7
mulligan send --key payment-7 confirmed '{"ok": true}'
"""

import asyncio

from services import request

from mulligan import program, step, wait_event


@step(retry=5)
def charge(card: str, amount: int) -> str:
    return request(f"charge {amount} to {card}")


@step(retry=5)
def take_back(payment: str) -> None:
    request(f"take {payment} back")


@step(retry=5)
def send_receipt(payment: str) -> None:
    request(f"send the receipt of {payment}")


@program
async def payment(card: str = "4242", amount: int = 40):
    number = await charge(card, amount)
    confirmed = asyncio.create_task(wait_event("confirmed", timeout="30d", default={"ok": False}))
    cancelled = asyncio.create_task(wait_event("cancelled"))
    await asyncio.wait([confirmed, cancelled], return_when=asyncio.FIRST_COMPLETED)
    if confirmed.done() and confirmed.result()["ok"]:
        await send_receipt(number)
        return {"status": "paid"}
    await take_back(number)
    return {"status": "cancelled" if cancelled.done() else "refused"}
