"""Rules about the test suite: its marks, what `make test` leaves out, and the clock."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rules import tree

OURS = frozenset({"slow", "jvm", "interop"})
"""Each decides which `make` target runs a test; CONTRIBUTING.md says what they mean."""
_PYTEST_S = frozenset({"parametrize", "skipif", "timeout", "usefixtures", "xdist_group"})

_QUICK = '-m "not slow and not jvm and not interop"'
_RULES = "tests/test_house_rules.py tests/test_rules_can_fail.py"
_MAKEFILE = {
    "RULES": _RULES,
    "NOT_RULES": "$(addprefix --ignore=,$(RULES))",
    "QUICK": f"$(NOT_RULES) {_QUICK}",
}
_TEST = re.compile(r"^test: .*\n\t@exec \$\(PYTEST\) \$\(QUICK\) \$\(ARGS\)\n\n", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])(-m|-k|--ignore|--ignore-glob|--deselect)(?![\w-])")
_NOT_COLLECTED = re.compile(r"collect_ignore|pytest_ignore_collect")
_CLOCKS = {"monotonic", "perf_counter", "process_time"}


def other_marks(root: Path) -> list[str]:
    """A mark that is not defined here selects nothing, or means two things."""
    return [
        f"{name}:{node.lineno} uses the mark {node.attr!r}, which is none of {sorted(OURS)}"
        for name, module in tree.modules(root, "tests/")
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
        and node.attr not in OURS | _PYTEST_S
    ]


def tests_left_out(root: Path) -> list[str]:
    """`make test` runs all but the marked tests and the house rules."""
    makefile = (root / "Makefile").read_text()
    found = [
        f"Makefile: {name} is no longer {value!r}"
        for name, value in _MAKEFILE.items()
        if not re.search(rf"^{name} := {re.escape(value)}\n", makefile, re.MULTILINE)
    ]
    if not _TEST.search(makefile):
        found.append("Makefile: `make test` has other arguments than $(QUICK)")
    options = {
        "Makefile": _line(makefile, "PYTEST :=").replace("python -m", "python"),
        "pyproject.toml": _line((root / "pyproject.toml").read_text(), "addopts ="),
    }
    found += [
        f"{name}: {left[0]}" for name, text in options.items() if (left := _OPTION.search(text))
    ]
    found += [
        f"{path.relative_to(root)}: {left[0]}"
        for path in tree.files(root / "tests", "conftest.py")
        if (left := _NOT_COLLECTED.search(path.read_text()))
    ]
    return found


def asserted_durations(root: Path) -> list[str]:
    """A busy machine is slow and not wrong: no test demands that something is quick."""
    return [
        f"{name}:{node.lineno} asserts how long something took; wait for it with a deadline"
        for name, module in tree.modules(root, "tests/")
        for node in ast.walk(module)
        if isinstance(node, ast.Assert) and any(map(_is_upper_bound, ast.walk(node.test)))
    ]


def _is_upper_bound(node: ast.AST) -> bool:
    """Whether a clock is read on the smaller side of a comparison."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    return any(
        (isinstance(how, ast.Lt | ast.LtE) and _reads_a_clock(left))
        or (isinstance(how, ast.Gt | ast.GtE) and _reads_a_clock(right))
        for left, how, right in zip(sides, node.ops, sides[1:], strict=False)
    )


def _reads_a_clock(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in _CLOCKS
        for part in ast.walk(node)
    )


def _line(text: str, start: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(start)), "")
