"""The agents whose commands we know: which is asked by default, and how each is run without asking for permission."""

from __future__ import annotations

DEFAULT_PROVIDER = "claude"
SKIP_PERMISSIONS = {"claude": "--dangerously-skip-permissions", "codex": "--dangerously-bypass-approvals-and-sandbox"}
