"""Rules about what users see: twins and exports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.rules import tree

# Package, blocking class, asyncio class.
TWINS = [
    ("rsmq", "Rsmq", "AsyncRsmq"),
    ("chasqui", "BlockingQueue", "Queue"),
    ("chasqui", "BlockingQueueAdmin", "QueueAdmin"),
    ("gomq", "GomqClient", "AsyncGomqClient"),
    ("kqueue", "Producer", "AsyncProducer"),
    ("kqueue", "Consumer", "AsyncConsumer"),
    ("store", "Store", "AsyncStore"),
]

# What asyncio calls by another name than "Async…", and the blocking word for it.
WORDS = {"Subscription": "Listener", "asynccontextmanager": "contextmanager"}

_HEADING = re.compile(r"^### `(\w+)`", re.MULTILINE)
# Each error has one line: its page is a table, and names may share a row.
_ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \|", re.MULTILINE)
_IN_ROWS = {"errors"}
_ALONE = {"__init__", "__enter__", "__exit__", "__iter__", "__next__"}


def unlike_twins(root: Path) -> list[str]:
    """A twin differs from the other by ``await`` alone: same methods, signatures and docstrings."""
    return [
        f"{package}: {fault}"
        for package, sync, aio in TWINS
        for fault in _differences(_face(root, package, sync), _face(root, package, aio), sync, aio)
    ]


def _face(root: Path, package: str, name: str) -> dict[str, str]:
    """What a class shows: each public method, written as the blocking twin would."""
    for _, module in tree.modules(root, f"src/tambomq/{package}/"):
        if (found := tree.classes(module).get(name)) is not None:
            return {
                _blocking(node.name): _signature(node)
                for node in found.body
                if isinstance(node, tree.Function) and _is_public(node.name)
            }
    return {}


def _is_public(name: str) -> bool:
    return not name.startswith("_") or _blocking(name) in _ALONE


def _signature(node: tree.Function) -> str:
    decorators = "".join(f"@{ast.unparse(each)} " for each in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    head = f"{decorators}def {node.name}({ast.unparse(node.args)}){returns}"
    return _blocking(f"{head}: {ast.get_docstring(node)!r}")


def _blocking(text: str) -> str:
    """Replace asyncio's words by the blocking ones."""
    text = re.sub(r"\bAwaitable\[(.*)\]", r"\1", text)
    for aio, sync in WORDS.items():
        text = re.sub(rf"\b{aio}\b", sync, text)
    text = re.sub(r"\b(?:Async|async )(\w)", r"\1", text)
    return re.sub(r"\b__a(enter|exit|iter|next)__", r"__\1__", text)


def _differences(
    sync: dict[str, str], aio: dict[str, str], sync_name: str, aio_name: str
) -> Iterator[str]:
    for name, face in ((sync_name, sync), (aio_name, aio)):
        if not face:
            yield f"no class {name} with public methods"
    for method in sorted(sync.keys() | aio.keys()):
        if sync.get(method) != aio.get(method):
            yield f"{sync_name}: {sync.get(method)}; {aio_name}: {aio.get(method)}"


def undocumented_exports(root: Path) -> list[str]:
    """What a package exports has a heading (an error: a row) in its page, and nothing else has."""
    return [
        f"{package}: exported {sorted(exported)}, documented {sorted(documented)}"
        for package, exported in _exports(root)
        if exported != (documented := _documented(root / f"docs/reference/{package}.md"))
    ]


def _exports(root: Path) -> Iterator[tuple[str, set[str]]]:
    errors = ast.parse((root / "src/tambomq/errors.py").read_text())
    yield "errors", set(tree.classes(errors))
    for name, module in tree.modules(root, "src/tambomq/"):
        parts = Path(name).parts
        if parts[-1] != "__init__.py" or len(parts) < len(
            ("src", "tambomq", "rsmq", "__init__.py")
        ):
            continue
        for node in module.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    yield ".".join(parts[2:-1]), set(ast.literal_eval(value))


def _documented(page: Path) -> set[str]:
    text = page.read_text() if page.exists() else ""
    if page.stem in _IN_ROWS:
        return {name.strip("`") for row in _ROW.findall(text) for name in row.split(", ")}
    return set(_HEADING.findall(text))
