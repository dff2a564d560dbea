"""Settings that a command inherits from `defaults`, from its step or from its map."""

from __future__ import annotations

import msgspec

from mulligan.core.model.workflow import Capture, Resources, Rule, Template
from mulligan.core.state.scope import reads_secrets
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.keys.workflow_keys import ENV, RESOURCES
from mulligan.language.scope import Scope, read_path_template, read_template
from mulligan.language.text.nodes import Mapping, Node

_KEYS = frozenset({"capture", "env", "cwd", "on_lost", "timeout", "resources", "retry", "breaker", "log_level"})
# `mulligan.step_context.log_records` reads it, in the process of the step.
LEVEL_VARIABLE = "MULLIGAN_LOG_LEVEL"
# `artifacts` of a workflow: the worker reads it in the task, see `service.host.object_places`.
OBJECTS_VARIABLE = "MULLIGAN_OBJECT_STORE"


class Retry(msgspec.Struct, frozen=True):
    """Retry rules and their common limits."""

    rules: tuple[Rule, ...] = ()
    max_attempts: int | None = None
    deadline: float | None = None


class Settings(msgspec.Struct, frozen=True):
    capture: Capture = "text"
    env: dict[str, Template] = {}
    cwd: Template | None = None
    on_lost: str = "rerun"
    timeout: float | None = None
    # From `defaults`. Not for engine actions: a person may take longer than a program.
    default_timeout: float | None = None
    resources: Resources | None = None
    # Read at each use, since a recovery script inherits the env and cwd of its command.
    retry: Node | None = None
    breaker: str | None = None
    # Read at each use: on a map, it is evaluated for each item.
    breaker_key: Node | None = None
    # From `defaults`, for steps only: the commands of a step would all use the same paths.
    logs: dict[str, Template] = {}

    def for_commands(self) -> Settings:
        """The settings that commands of a handler inherit: without retries and limits."""
        return Settings(capture=self.capture, env=self.env, cwd=self.cwd, on_lost=self.on_lost)

    def for_effects(self) -> Settings:
        """The settings of commands whose output is not used: it need not have the step's format."""
        return msgspec.structs.replace(self, capture="text")

    def merge(self, fields: Fields, scope: Scope) -> Settings:
        """These settings overridden by the given fields. Problems are noted."""
        if _KEYS.isdisjoint(fields.values):
            return self
        scope = scope.in_attempt
        return Settings(
            capture=fields["capture"] if isinstance(fields.get("capture"), str) else self.capture,
            env=_merge_env(self.env, fields, scope),
            cwd=_read_cwd(fields.at("cwd"), scope) if "cwd" in fields else self.cwd,
            on_lost=fields.get("on_lost", self.on_lost),
            timeout=fields.get("timeout", self.timeout),
            default_timeout=self.default_timeout,
            resources=read_resources(fields["resources"]) if "resources" in fields else self.resources,
            retry=fields.at("retry") if "retry" in fields else self.retry,
            breaker=self.breaker if "breaker" not in fields else guard_of(fields)[0],
            breaker_key=self.breaker_key if "breaker" not in fields else guard_of(fields)[1],
            logs=self.logs,
        )


def guard_of(fields: Fields) -> tuple[str, Node | None]:
    """The name of a breaker as `breaker` gives it, and the node of its key."""
    found = fields["breaker"]
    return (found.get("name", ""), found.get("key")) if isinstance(found, Fields) else (found, None)


def read_breaker_key(node: Node | None, scope: Scope) -> Template | None:
    """The key of a breaker. It is recorded and shown, so it has no secrets."""
    if node is None:
        return None
    key = read_template(node, scope.in_attempt)
    if reads_secrets(key):
        message = "the key of a breaker cannot contain a secret: it is part of the breaker's name"
        raise scope.source.refuse("secret", message, node, hint="use a name for what the secret opens")
    return key


def read_env(node: Node, scope: Scope) -> dict[str, Template]:
    """Environment variables. Names that start with MULLIGAN_ are reserved."""
    env: dict[str, Template] = {}
    with scope.noting:
        for name, value in ENV.read(node, "'env'", scope.source).items():
            if name.startswith("MULLIGAN_"):
                key = node.key(name) if isinstance(node, Mapping) else value
                scope.note(scope.source.refuse("name", f"'{name}' in 'env' is set by Mulligan itself", key))
            with scope.noting:
                env[name] = read_template(value, scope)
                from mulligan.language.shell import shell_safety

                if env[name].reads and (danger := shell_safety.variable_danger(name)):
                    message = f"'{name}' in 'env' {danger.reason}"
                    raise scope.source.refuse("shell", message, value, hint=danger.hint)
    return env


def _merge_env(env: dict[str, Template], fields: Fields, scope: Scope) -> dict[str, Template]:
    """The variables with those of the fields, and the level from which on Python code logs."""
    if "env" in fields:
        env = {**env, **read_env(fields.at("env"), scope)}
    return {**env, LEVEL_VARIABLE: Template((fields["log_level"],))} if "log_level" in fields else env


def read_logs(form: Fields, scope: Scope) -> dict[str, Template]:
    """The paths of links to the logs of each attempt."""
    paths = {name: read_path_template(node, scope.in_attempt) for name, node in form.values.items()}
    secret = next((name for name, path in paths.items() if reads_secrets(path)), None)
    if secret:
        raise scope.source.refuse("secret", "a path cannot contain a secret: paths are recorded", form.at(secret))
    return paths


def _read_cwd(node: Node, scope: Scope) -> Template | None:
    with scope.noting:
        return read_path_template(node, scope)
    return None


def read_resources(fields: Fields) -> Resources:
    return Resources(**fields.pick(*RESOURCES.keys))
