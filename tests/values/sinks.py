"""Files that values write: a folder instead of a step."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mulligan.values.encoding import encode
from mulligan.values.files import StoredFile


@dataclass
class FolderSink:
    """Keeps files in a folder, as a step keeps them in that of its worker."""

    folder: Path
    registered: dict[str, Path] = field(default_factory=dict)
    previews: list[Any] = field(default_factory=list)
    _count: int = 0

    def new_artifact_path(self, ending: str) -> str:
        self._count += 1
        return str(self.folder / f"file-{self._count}{ending}")

    def register_artifact(
        self, path: str, *, name: str, format: str, is_listed: bool, preview: Any = None, **fields: Any
    ) -> dict[str, Any]:
        assert not is_listed
        self.previews.append(preview)
        data = Path(path).read_bytes()
        unique = f"new/{len(self.registered)}/{name}"
        self.registered[unique] = Path(path)
        about = {"name": unique, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "format": format}
        return {"$artifact": {**about, **fields}}

    # -- both ways

    def encode(self, value: object) -> Any:
        return json.loads(encode(value, lambda: self))

    def read_bytes(self, reference: dict[str, Any]) -> bytes:
        return self.registered[reference["name"]].read_bytes()

    def with_files(self, value: Any) -> Any:
        """What a step gets: references replaced by files."""
        if isinstance(value, dict):
            if "$artifact" in value:
                return StoredFile(str(self.registered[value["$artifact"]["name"]]), value)
            return {key: self.with_files(inner) for key, inner in value.items()}
        return [self.with_files(inner) for inner in value] if isinstance(value, list) else value
