"""Finding and reading the files of a repository, with or without git."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_GENERATED = "*_pb2*.py"


def files(root: Path, suffix: str = "") -> Iterator[Path]:
    """Yield the files below *root* that ``.gitignore`` does not name, in order."""
    ignore = [".git"]
    if (root / ".gitignore").exists():
        ignore += [line.rstrip("/") for line in (root / ".gitignore").read_text().split()]
    yield from _walk(root, ignore, suffix)


def _walk(folder: Path, ignore: list[str], suffix: str) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in ignore):
            continue
        if path.is_dir():
            yield from _walk(path, ignore, suffix)
        elif path.name.endswith(suffix):
            yield path


def modules(root: Path, *folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield each hand-written Python file of *folders*: its path as text, and its syntax."""
    for path in files(root, ".py"):
        name = path.relative_to(root).as_posix()
        if name.startswith(folders) and not fnmatch(path.name, _GENERATED):
            yield name, ast.parse(path.read_text())


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield each function and method, however deep."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """The classes of a module by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
