"""How long a large file takes: a workflow of 20,000 lines, loaded and checked.

    python bench/language.py [LINES]

Prints seconds for parsing alone and for all of it. The goal is under 2 s for 20,000 lines. Then the hardest files of
that length: a step on each line, with two expressions that no other line has; and the same with one step that all read.
"""

from __future__ import annotations

import sys
import time

from mulligan.language import load_text
from mulligan.language.text.document import decode, parse
from mulligan.service.rendering.drawing import draw_svg

LINES_DEFAULT = 20_000
# What ten lines of a real file look like: every second step reads another, every fifth is a map.
_PLAIN = """\
  - step: build_{i}
    needs: [{needs}]
    shell: make -C parts/{i} TARGET=${{inputs.target}} all
    capture: json
    timeout: 10m
    retry: flaky_io
    env: {{PART: "{i}", REGION: "${{inputs.region}}"}}
    on_failure:
      - make -C parts/{i} clean
      - make -C parts/{i} -j1 all
"""
_READER = """\
  - step: test_{i}
    needs: [build_{before}]
    when: steps.build_{before}.status == 'completed' && inputs.target != 'none'
    shell: |
      set -eu
      ./test.sh --part {i} --result ${{steps.build_{before}.output}}
    validate: output.contains('ok {i}')
    next:
      - {{to: note_{i}, on: failure, codes: [EXIT_NONZERO]}}
  - {{step: note_{i}, agent: "Look at ${{failure.context}} of part {i}"}}
"""
_HEAD = """\
name: large
inputs: {target: {default: staging}, region: {default: north}}
retry_policies:
  flaky_io: {rules: [{exit_codes: [10], recovery_script: ./clear.sh}, {any: true, max_retries: 1}]}
steps:
"""


def large_file(lines: int) -> str:
    """A workflow of about that many lines: chains of builds, each with its test, many expressions all different."""
    blocks = [_HEAD]
    for i in range(max(1, lines // 20)):
        blocks.append(_PLAIN.format(i=i, needs=f"build_{i - 1}" if i % 50 else ""))
        blocks.append(_READER.format(i=i, before=i))
    return "".join(blocks)


def one_line_steps(lines: int) -> str:
    """A step on each line, with two expressions of its own."""
    line = '  - {{step: s{i}, shell: \'echo ${{inputs.target + "{i}"}} ${{inputs.region == "{i}"}}\'}}\n'
    return _HEAD + "".join(line.format(i=i) for i in range(lines))


def readers_of_one(lines: int) -> str:
    """A step on each line, which needs and reads the first."""
    line = "  - {{step: s{i}, needs: [first], shell: make {i}, when: steps.first.output == {i}}}\n"
    return _HEAD + "  - {step: first, shell: make}\n" + "".join(line.format(i=i) for i in range(lines))


def _draw() -> None:
    """A picture of 2,000 steps in 40 layers."""
    above = [f"s{i - 50 + shift}" for i in range(2000) for shift in (0, 1)]
    lines = [
        f"  - {{step: s{i}, shell: make, needs: [{', '.join(above[2 * i : 2 * i + 2])}]}}" for i in range(50, 2000)
    ]
    text = "steps:\n" + "".join(f"  - {{step: s{i}, shell: make}}\n" for i in range(50)) + "\n".join(lines) + "\n"
    workflow = load_text(text, "layers.yaml")
    start = time.perf_counter()
    draw_svg(workflow)
    print(f"drawn        {time.perf_counter() - start:.2f} s   (an SVG of 2,000 steps; bar: under 2 s)")


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else LINES_DEFAULT
    text = large_file(lines)
    start = time.perf_counter()
    parse(decode(text.encode(), "large.yaml"))
    parsed = time.perf_counter()
    workflow = load_text(text, "large.yaml")
    loaded = time.perf_counter()
    print(f"lines        {text.count(chr(10)):,}")
    print(f"steps        {len(workflow.steps):,}")
    print(f"parsed       {parsed - start:.2f} s")
    print(f"all of it    {loaded - parsed:.2f} s   (bar: under 2 s for 20,000 lines)")
    _draw()
    print("\nharder than any bar: a step on every line")
    for name, hard in (("one-liners", one_line_steps(lines)), ("one is read", readers_of_one(lines))):
        start = time.perf_counter()
        load_text(hard, "hard.yaml")
        print(f"{name:<12} {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
