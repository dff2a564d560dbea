"""Mulligan: durable workflows in which failure is a first-class path."""

__version__ = "0.1.0"


class StepError(Exception):
    """Raised by a Python step to say itself what went wrong. Severity `warning`, `error` or `critical`."""

    def __init__(self, code, message="", *, severity=None, retryable=None, details=None):
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.severity = severity
        self.retryable = retryable
        self.details = details or {}

    def report(self):
        """What the engine is told: only what was said."""
        fields = {
            "code": self.code,
            "message": self.message,
            "severity": self.severity,
            "retryable": self.retryable,
            "details": self.details,
        }
        return {name: value for name, value in fields.items() if value not in (None, "", {})}


_ELSEWHERE = {
    "ActionPlugin": "mulligan.plugins",
    "FormatPlugin": "mulligan.plugins",
    "Workflow": "mulligan.language.builder",
}


def __getattr__(name):
    """What is ours to give, for who asks for it: a step that needs nothing of ours loads nothing of ours."""
    if name in _ELSEWHERE:
        return getattr(__import__(_ELSEWHERE[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan' has no attribute '{name}'")
