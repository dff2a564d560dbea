"""Bodies that are written to disk while they come: a server holds one piece of an upload, and not all of it.

What a server that was killed has left is removed by the background job for retention.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from mulligan.service.server.store_calls import UploadedFile


async def receive(folder: Path, pieces: AsyncIterator[bytes]) -> UploadedFile:
    """Write the pieces into a new file of the folder. It is removed if they break off; otherwise by the caller."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / os.urandom(12).hex()
    digest, size = hashlib.sha256(), 0
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            async for piece in pieces:
                file.write(piece)
                digest.update(piece)
                size += len(piece)
    except BaseException:
        remove(path)
        raise
    return UploadedFile(str(path), size, digest.hexdigest())


def remove(path: str | Path) -> None:
    """Remove what was uploaded, unless it was kept."""
    with suppress(FileNotFoundError):
        os.unlink(path)
