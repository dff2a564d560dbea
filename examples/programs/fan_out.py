"""A queue with a fan-out: index many documents beside each other, only so many at a time, and count the pages.

mulligan run fan_out.py
"""

from services import request

from mulligan import gather, program, publish_state, step


@step(inline=True)
def list_documents(count: int) -> list[str]:
    return [f"report-{number}.pdf" for number in range(1, count + 1)]


@step(retry=3, timeout="5m")
def index(document: str) -> int:
    request(f"index {document}")
    return len(document)


@program(max_parallel=4)
def fan_out(count: int = 6):
    documents = list_documents(count)
    publish_state(documents=len(documents))
    pages = gather(index.call(document) for document in documents)
    return {"documents": len(documents), "pages": sum(pages)}
