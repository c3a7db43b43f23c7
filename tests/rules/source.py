"""Rules about Python source."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.rules import tree

MODULE_LINES, TEST_LINES, FUNCTION_LINES = 300, 400, 40
FOLDER_MODULES = 17

# What may be longer, how long, and why: "path" or "path:function".
LONGER: dict[str, tuple[int, str]] = {
    "src/tambomq/errors.py": (650, "every error, with the tree of all of them on top"),
    "src/tambomq/settings/sections.py": (
        400,
        "every setting with its default, a line or two for each",
    ),
    "src/tambomq/chasqui/worker/worker.py:__init__": (58, "29 options, a line for each"),
}

# Beginnings and whole keys, and the ends that are put behind a namespace or a hash tag.
KEY = re.compile(
    r"""
      rsmq:(?![ /])                                       # rsmq:QUEUES, but not rsmq://host
    | \{(chasqui|tambo)\b                                 # hash tags
    | tambo:(probe|alarms)\b | gomq:\0?$
    | (CONSUMERS|SUBSCRIPTIONS|PEERS|QUEUE|MESSAGES|LASTACTION|TALLY|HANDED|FENCE|LEASES?|MOVE
      |TRANSIT|ORIGINS|LEAVING|UNSUBSCRIBED|LEFT|LEAVERS)_
    | (SUBSCRIBED_KEYS|UNSETTLED|ASIDE|HELD)$
    | \0?:(QUEUES|rt:.*)$ | (\0:)+Q$                      # f"{ns}:QUEUES", f"{ns}:{queue}:Q"
    | (\0:)*\0?:(stream|dlq|delayed|repeat|events|paused|receipts|leases|members|verdicts|redrives
      |moved|transit|origins|journal|state|bounds|sizes|(promoter|scheduler):lock|\*|\*:leases)$
    | (\0:)*\0?:(repeat:spec|result|dlid|didx|progress|log|stalls|added|idmp|tambo|lease|fence
      |redrive|move|set|discarded):.*$
    """,
    re.VERBOSE,
)
_NAMESPACE = "rsmq"
_NAMESPACE_IS = {"default", "namespace", "ns"}

_BRANCH = re.compile(r"^((?:│   |    )*)(?:├── |└── )?(\w+)(?:\s{2,}.*)?$")

_LONG_SLEEP_S = 0.2


def modules_without_docstring(root: Path) -> list[str]:
    """Each module says what it is for."""
    return [
        f"{name} has no docstring"
        for name, module in tree.modules(root, "src/", "benchmarks/", "examples/")
        if not ast.get_docstring(module)
    ]


def keys_spelled_elsewhere(root: Path) -> list[str]:
    """Redis keys and the default namespace stand in ``keys.py`` and nowhere else."""
    return [
        f"{name} spells {text!r}: that is for keys.py"
        for name, module in tree.modules(root, "src/")
        if not name.endswith("/keys.py")
        for text in [*filter(KEY.match, _strings(module)), *_default_namespaces(module)]
    ]


def _strings(module: ast.Module) -> Iterator[str]:
    """Each string that is not a docstring; what an f-string fills in becomes a NUL."""
    parts = {
        id(part)
        for node in ast.walk(module)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    bare = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if id(node) in parts | bare:
            continue
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Constant(value=bytes(data)):
                yield data.decode("latin-1")
            case ast.JoinedStr(values=values):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "\0" for part in values
                )


def _default_namespaces(module: ast.Module) -> Iterator[str]:
    """Where the namespace is given its default: a parameter, a field, an option."""
    for node in ast.walk(module):
        match node:
            case ast.arguments():
                plain = [*node.posonlyargs, *node.args]
                pairs = [*zip(plain[::-1], node.defaults[::-1], strict=False)]
                pairs += [
                    (a, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d
                ]
                found = [(arg.arg, default) for arg, default in pairs]
            case ast.keyword(arg=str(name), value=value):
                found = [(name, value)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found = [(name, value)]
            case _:
                continue
        for name, value in found:
            if name in _NAMESPACE_IS and getattr(value, "value", None) == _NAMESPACE:
                yield f"{name}={_NAMESPACE}"


def too_long(root: Path) -> list[str]:
    """Modules and functions end before the reader's patience does."""
    lengths: dict[str, tuple[int, int]] = {}
    for name, module in tree.modules(root, "src/", "tests/", "benchmarks/", "examples/"):
        limit = TEST_LINES if name.startswith("tests/") else MODULE_LINES
        lengths[name] = (root / name).read_text().count("\n"), limit
        for function in tree.functions(module):
            lines = (function.end_lineno or 0) - function.lineno + 1
            lengths[f"{name}:{function.name}"] = lines, FUNCTION_LINES
    return [*_over(lengths), *_needless(lengths)]


def _over(lengths: dict[str, tuple[int, int]]) -> Iterator[str]:
    for name, (lines, limit) in lengths.items():
        allowed = LONGER[name][0] if name in LONGER else limit
        if lines > allowed:
            yield f"{name} has {lines} lines; {allowed} are enough"


def _needless(lengths: dict[str, tuple[int, int]]) -> Iterator[str]:
    for name in LONGER:
        lines, limit = lengths.get(name, (0, 0))
        if lines <= limit:
            yield f"{name} needs no exception"


def too_full(root: Path) -> list[str]:
    """A folder of the package holds few enough modules to be read as a list."""
    counts = Counter(
        name.rpartition("/")[0]
        for name, _ in tree.modules(root, "src/")
        if not name.endswith("/__init__.py")
    )
    return [
        f"{folder} has {count} modules; {FOLDER_MODULES} are enough"
        for folder, count in counts.items()
        if count > FOLDER_MODULES
    ]


def errors_not_as_drawn(root: Path) -> list[str]:
    """The tree in the docstring of ``errors`` shows each class under its base."""
    module = ast.parse((root / "src/tambomq/errors.py").read_text())
    drawn = _drawn(ast.get_docstring(module) or "")
    real = {
        name: ast.unparse(node.bases[0]) if node.bases else ""
        for name, node in tree.classes(module).items()
    }
    return [
        f"{name}: drawn under {drawn.get(name)}, is a {real.get(name)}"
        for name in sorted(drawn.keys() | real.keys())
        if drawn.get(name) != real.get(name)
    ]


def _drawn(docstring: str) -> dict[str, str]:
    """Read the tree: each name with the one it hangs under."""
    parents: dict[str, str] = {}
    path: list[str] = []
    lines = docstring.split("\n\n")[1].splitlines() if "\n\n" in docstring else []
    for line in lines:
        if (branch := _BRANCH.match(line)) is None:
            continue
        depth = len(branch[1]) // 4 + ("── " in line)
        path[depth:] = [branch[2]]
        parents[branch[2]] = path[depth - 1] if depth else "Exception"
    return parents


def sleeping_tests(root: Path) -> list[str]:
    """A test waits for a condition, not for time to pass."""
    return [
        f"{name}:{call.lineno} sleeps; wait with eventually()"
        for name, module in tree.modules(root, "tests/")
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and _sleeps(call)
    ]


def _sleeps(call: ast.Call) -> bool:
    match call:
        case ast.Call(
            func=ast.Attribute(attr="sleep") | ast.Name(id="sleep"),
            args=[ast.Constant(value=int() | float() as seconds), *_],
        ):
            return seconds >= _LONG_SLEEP_S
    return False
