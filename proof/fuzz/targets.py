"""All that is fuzzed, by name: the function, and what to begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from . import paths, playbooks, questions, reading, records, requests, samples, seeds, server_texts, shells, texts

Run = Callable[[bytes], None]
Seeds = Callable[[], Sequence[bytes]]


class Target:
    """What takes any bytes, and raises where they show something wrong. `share` is how much of the time it gets."""

    def __init__(self, name: str, run: Run, seeds: Seeds, words: Sequence[str] = (), *, share: int = 1) -> None:
        self.name = name
        self.run = run
        self.share = share
        self._seeds = seeds
        self._words = [word.encode() for word in words]

    @cached_property
    def seeds(self) -> list[bytes]:
        return list(self._seeds())

    @cached_property
    def words(self) -> list[bytes]:
        """What its inputs are made of."""
        return [*self._words, *seeds.words(self.seeds)]


def _written(*found: str) -> Seeds:
    return lambda: [text.encode() for text in found]


def _any_file() -> list[bytes]:
    systems = [seeds.foreign("torc", ".yaml"), seeds.foreign("prodigy", ".yml"), seeds.foreign("noetl", ".yaml")]
    return [*seeds.workflows()[:40], *(seed for found in systems for seed in found), *seeds.foreign("alphred", ".json")]


_ALL = [
    Target(
        "yaml", reading.yaml, seeds.workflows, ["&a", "*a", "!!str", "|", ">-", "? ", "- ", "---\n", "..."], share=2
    ),
    Target("workflow", reading.workflow, seeds.workflows, share=4),
    Target(
        "includes",
        reading.includes,
        _written(*samples.INCLUDING),
        ["child.yaml", "other.yaml", "link.yaml", "loop.yaml", "../", "main.yaml"],
    ),
    Target(
        "expression",
        texts.expression,
        lambda: [*seeds.expressions(), *map(str.encode, samples.COSTLY)],
        [*samples.CEL.split(" "), "inputs.list", "inputs.n", "inputs.many", "inputs.long", ".map(x, x + x)"],
        share=4,
    ),
    Target(
        "shell_text",
        texts.shell_text,
        _written(*samples.SCRIPTS),
        ["${inputs.x}", "${item}", "<<EOF\n", "$((", "[[", "esac", "${y:-"],
        share=2,
    ),
    Target(
        "shell",
        shells.shell,
        lambda: [bytes([hole, 2, context, 3, 1]) for hole in range(9) for context in range(0, 70, 3)],
        share=3,
    ),
    Target("sql", shells.sql, lambda: [bytes([place, 2, 1]) for place in range(len(shells.PLACES))]),
    Target("path", paths.path, paths.seeds, paths.WORDS, share=2),
    Target(
        "playbook_shell",
        playbooks.shell,
        lambda: [bytes([kind % 2, kind, 2, context, 3, 1]) for kind in range(19) for context in range(0, 70, 5)],
        share=2,
    ),
    Target(
        "playbook_sql",
        playbooks.sql,
        lambda: [bytes([kind, place, 2, 1]) for kind in range(19) for place in range(len(playbooks.PLACES))],
    ),
    Target(
        "query",
        texts.query,
        _written(*samples.QUERIES),
        ["begin", "case", "end", "create function", "$$", "$a$", "e'", "/*", "*/", ":name", "?"],
    ),
    Target(
        "quantity",
        texts.quantity,
        lambda: [samples.QUANTITIES.encode(), *map(str.encode, samples.QUANTITIES.split(" "))],
        ["P", "T", "W", "ms", "KiB"],
    ),
    Target(
        "pattern",
        texts.pattern,
        _written(*samples.PATTERNS),
        ["(?:", "(?=", "*?", "++", "{2,5}", "|", ".*", r"\b", r"\1", "(?i)", "[^"],
        share=2,
    ),
    Target(
        "template",
        texts.template,
        _written(*samples.TEMPLATES),
        ["{{", "}}", "{%", "|tojson", "|map", "|attr", "__class__", "namespace", "range", "**", "self"],
        share=3,
    ),
    Target(
        "json5",
        reading.json5,
        lambda: [*seeds.foreign("alphred", ".json", ".json5"), *seeds.foreign("torc", ".json", ".json5")],
    ),
    Target("kdl", reading.kdl_text, lambda: seeds.foreign("torc", ".kdl"), ['r#"', "/-", "/*", '"""', "\\u{", "#true"]),
    Target("torc", reading.of_system("torc", ".yaml"), lambda: seeds.foreign("torc", ".yaml"), share=2),
    Target("torc_kdl", reading.of_system("torc", ".kdl"), lambda: seeds.foreign("torc", ".kdl")),
    Target("prodigy", reading.of_system("prodigy", ".yml"), lambda: seeds.foreign("prodigy", ".yml", ".yaml"), share=2),
    Target("noetl", reading.of_system("noetl", ".yaml"), lambda: seeds.foreign("noetl", ".yaml"), share=2),
    Target(
        "alphred", reading.of_system("alphred", ".json"), lambda: seeds.foreign("alphred", ".json", ".json5"), share=2
    ),
    Target("anybodys", reading.anybodys, _any_file, share=2),
    Target("event", records.event, records.event_seeds),
    Target("report", records.report, lambda: [bytes([number]) for number in range(50)], share=2),
    Target("said_turn", records.said_turn, lambda: [bytes([number]) for number in range(50)], share=2),
    Target("kept_workflow", records.kept_workflow, records.workflow_seeds),
    Target("row", records.row, records.row_seeds),
    Target("stored_row", records.stored_row, records.stored_rows),
    Target(
        "credentials",
        texts.credentials,
        _written(*samples.CREDENTIALS),
        [
            "password=",
            "token: ",
            "Bearer ",
            "://u:",
            "@",
            "eyJ",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
        ],
    ),
    Target("reference", records.reference, records.references, ['{"$artifact":', '"name":', "null"]),
    Target(
        "written",
        records.written,
        _written(*samples.ERRORS, "a\nb\n", '{"status": "completed", "output": 1}'),
        ["NaN", '"severity":', "\\ud800"],
    ),
    Target("frames", records.frames, lambda: [bytes([1, 2, 3]), bytes([255]), bytes(20)]),
    Target("answer", records.answer, records.answer_seeds, ['"number":1', '"output":', "null"]),
    Target(
        "command_line",
        texts.command_line,
        _written(*samples.WORDS),
        ["--json", "--home", "-i", "--", "=", "\n", "--error"],
        share=2,
    ),
    Target(
        "request", requests.request, requests.request_seeds, ["null", "-1", "?limit=", "&", "dry_run", "%00"], share=4
    ),
    Target("tool_call", requests.tool_call, requests.tool_seeds, ["null", "-1", '"1"', "dry_run"], share=3),
    Target(
        "cron",
        server_texts.cron,
        _written(*samples.CRONS),
        ["*/", "L", "#", "W", "MON-FRI", "?", "@daily", "29 2", "Europe/Berlin", "Australia/Lord_Howe", "../", "UTC"],
        share=2,
    ),
    Target(
        "schedule",
        server_texts.schedule,
        _written(*samples.SCHEDULES),
        ['"every":', '"anchor":', '"catch_up":', "all(20)", "6h", "1e300", "9999-12-31T23:59:59Z", "${schedule."],
    ),
    Target(
        "notice_target", server_texts.notice_target, _written(*samples.ADDRESSES), ["://", "@", "whsec_", "?", "[::"]
    ),
    Target("server_file", server_texts.server_file, _written(*samples.SERVER_FILES), ["[targets.", "urls", "{env ="]),
    Target("notice", server_texts.notice, _written(*samples.NOTICES), ['"failures":', '"details":', '"request":']),
    Target("question", questions.question, questions.question_seeds, share=2),
    Target("statement", questions.statement, questions.statement_seeds, ["with recursive", "pragma", "into"], share=2),
]
TARGETS = {target.name: target for target in _ALL}
