"""Short inputs to begin with, where neither examples nor tests have any."""

from __future__ import annotations

QUANTITIES = "1h30m 500ms PT5M P1W 512MiB 4GB x1.5 30 1.5 0x1f 0o17 2030-01-31T09:00:00Z 1:30:00 .inf -1 10% 5 minutes"
PATTERNS = [
    "license .* unavailable",
    "connection (refused|reset)",
    "(a+)+$",
    r"(?i)\btimeout\b",
    "a.*b.*c",
    "^x{2,}(?!y)",
]
PATTERNS += [r"(?:\B|a){200}b", r"(?:\Ba?){99}b", r"(?:^?\b?){9}(?:$|\B)*z", r"(a*)\1b", r"(a|b)\1"]
PATTERNS += [r"\d+\s*%", "(?P<n>a)(?P=n)", "[^a-z]+?$", "(?>a|b)+", "a*a*a*b", r"(\w+\s?)*x", ".*.*=.*"]
TEMPLATES = [
    "{{ inputs.x }}",
    "{% for i in inputs.list %}{{ i }}{% endfor %}",
    "{{ inputs.n + 1 }}",
    "x{{ inputs.x|upper }}y",
]
TEMPLATES += [
    "{{ ().__class__.__mro__ }}",
    "{{ inputs|tojson }}",
    "{% if inputs.n > 2 %}a{% endif %}",
    "{{ 'a' * 3 }}",
    "{{ 2 ** 3 }}",
]
TEMPLATES += [
    "{% set x = [1,2] %}{{ x|join(',') }}",
    "{{ cycler.__init__ }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1) }}",
]
TEMPLATES += [
    "{{ '%s' % inputs.x }}",
    "{{ inputs.x.format(1) }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ inputs['list'][0] }}",
    "{{ range(3)|list }}",
]
WORDS = [
    "run\nw.yaml\n-i\nx=1\n--json",
    "s=a\ni=3\nn=1.5\nb=true\na=[1]\no={}\ne=x",
    '{"code": "TIMEOUT", "message": "slow", "exit_code": 3}',
]
WORDS += [
    '[{"run_id": 1, "step": "a", "verdict": "retry", "reason": "x", "memory": "4GiB", "timeout": "30m"}]',
    "retry\n1\n--adjust\n--from\na",
]
WORDS += [
    'step\nw.yaml\na\n--handler\n--error\n{"cause": [{"code": "X"}], "details": {}}',
    "4GiB\n30m",
    "classify\n1\na\nretry\n--reason\nx\n--memory\n1GB",
]
ERRORS = [
    '{"code": "NO_LICENSE", "severity": "warning", "message": "x"}',
    '[{"code": "A", "retryable": false, "details": {"a": 1}}]',
    '"x"',
    "[1, 2.5, null]",
]
QUERIES = [
    "select * from t where a = :a and b = '${inputs.x}'; -- :c",
    "create trigger t begin select 1; end; select $$a;b$$",
    "select ?, ?2",
    "a::int /* ; :x */",
]
SCRIPTS = [
    "make TARGET=${inputs.x} list",
    'for f in ${item}; do echo "$f"; done',
    "cat <<EOF\n${inputs.x}\nEOF",
    "x=${HOME} ${item%.json} $(echo ${index})",
]
SCRIPTS += [
    "[[ ${inputs.x} == a* ]] && echo 'x' $'\\'' \"`date`\"",
    "case ${item} in a|b) ;; esac",
    "echo ${a:-${inputs.x}} $((1+2)) <(ls) 2>&1 | tee x",
]
CEL = "size has( inputs. steps.a.output .map(x, .filter(x, .exists(x, matches( ? : && ||"
CEL += ' in null true " \' r" b" [0] . {"a": 1} 1u 0x1f .split(",") .join()'
COSTLY = [
    "inputs.many.map(x, inputs.many)",
    "inputs.many.all(x, inputs.many.all(y, inputs.many == inputs.many))",
    "inputs.many.filter(x, x.k > 1).map(x, string(x.k) + inputs.long)",
    "inputs.long.split('').map(x, inputs.long)",
    "inputs.long.replace('', inputs.long)",
    "inputs.many.map(x, string(x.k)).join(inputs.long)",
    "['a']" + ".map(x, [x, x])" * 24,
    "['a']" + ".map(x, x + x)" * 24,
]
INCLUDING = [
    "steps: [{step: a, workflow: child.yaml}]\n%%%\n"
    "steps: [{step: b, workflow: {file: other.yaml, inputs: {x: 1}}}]\n%%%\n"
    "inputs: {x: integer}\nsteps: [{step: c, shell: make}]",
    "steps: [{step: a, workflow: link.yaml}, {step: b, workflow: loop.yaml}, {step: c, workflow: ./child.yaml}]\n%%%\n"
    "steps: [{step: b, shell: make}]",
]

CREDENTIALS = (
    "login with password=hunter2 failed",
    'curl -H "Authorization: Bearer abcdefghijklmnop1234" https://user:secret1@host/x',
    '{"api_key": "abc123def456", "user": "bob"}',
    "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAx7abcdef\n-----END PRIVATE KEY-----\n",
    "token 5 of 7, password: required",
)

CRONS = [
    "30 2 * * *\nEurope/Berlin",
    "*/15 * * * MON-FRI\nUTC",
    "0 0 29 2 *\nAmerica/New_York",
    "0 0 L * *\nPacific/Apia",
    "5,35 1-3 1,15 JAN-JUN/2 *\nAustralia/Lord_Howe",
    "0 12 * * MON#2\nAsia/Kathmandu",
    "0 0 31 2 *\nUTC",
    "0 2 * * 5L\nAfrica/Casablanca",
    "@daily\nEurope/London",
    "@yearly",
    "59 23 31 12 7",
]
SCHEDULES = [
    '{"workflow": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "catch_up": "all(20)"}',
    '{"workflow": "nightly", "every": "6h", "anchor": "2026-01-01T00:00:00Z", "overlap": "queue", "pause_after": 3}',
    '{"workflow": "nightly", "every": 90.5, "catch_up": "none", "labels": {"team": "data"}, "inputs": {"n": [1]}}',
    '{"workflow": "nightly", "cron": "0 6 * * *", "inputs": {"day": "${schedule.date}", "all": ["${schedule}"]}}',
    '{"workflow": "nightly", "every": "1h", "inputs": {"t": "${timestamp(schedule.previous) - duration(\'1h\')}"}}',
    "15m",
]
ADDRESSES = [
    "mailto://user:password@mail.example.org/?to=ops@example.org\nslack://T1/B2/C3/#ops",
    "https://hooks.example.org/services/T1\nwhsec_aGVsbG8=",
    "discord://id/token\ntgram://bot/chat\njson://user:pw@host:8080/path\nwhsec_x",
    "ntfys://topic@host\nmatrixs://u:p@host/#room\nxml://[::1]:80/x\npagerduty://key@id/%20",
]
SERVER_FILES = [
    '[server]\nhost = "0.0.0.0"\nport = 8642\nhosts = ["runs.example.org"]\ninsecure = true\n'
    '[server.trusted_proxy]\naddresses = ["10.0.0.0/8"]\nscopes = ["read", "run"]\n',
    '[targets.ops]\nurls = ["mailto://ops@example.org", {env = "OPS_URL"}]\nper_minute = 5\ngive_up_after = "24h"\n'
    '[targets.program]\nwebhook = {file = "/run/hook"}\nsecret = [{env = "ONE"}, {env = "TWO"}]\ntimeout_seconds = 5\n'
    '[otel]\nendpoint = "http://localhost:4318"\n',
]
NOTICES = [
    '{"event": "failed", "title": "run 7 failed", "at": "2026-11-17T02:00:00Z", "run_id": 7, "workflow": "nightly",'
    ' "status": "failed", "details": ["two steps failed"], "failures": [{"step": "fetch", "code": "EXIT",'
    ' "message": "exit 3"}], "failures_count": 2, "has_run_out": true}',
    '{"event": "needs_person", "title": "waits for you", "at": "2026-11-17T02:00:00+02:00", "run_id": 1, "step": "ask",'
    ' "request": "approval"}',
    '{"event": "test", "title": "a test", "at": "2026-11-17T02:00:00Z"}',
]
