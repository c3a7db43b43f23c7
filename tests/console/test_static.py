"""The console's static files: nothing in them writes markup or styles from text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src/tambomq/console/static"
OURS = sorted(
    path
    for path in STATIC.rglob("*")
    if path.suffix in {".html", ".css", ".js", ".svg"} and "vendor" not in path.parts
)
SCRIPTS = [path for path in OURS if path.suffix == ".js"]
SHEETS = [path for path in OURS if path.suffix == ".css"]
MADE_UP = re.compile(r"(c|without)-\w+|u-.+")
"""Classes that a script puts together from a column's key, and those of the chart library."""
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    r"|\bstyle=|srcdoc=|\son[a-z]+=\"|javascript:|https?://(?!www\.w3\.org/)"
)
MAX_LINES = 300


def _name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_no_file_turns_text_into_markup_or_loads_from_elsewhere(path: Path) -> None:
    assert FORBIDDEN.findall(path.read_text()) == []


@pytest.mark.parametrize("path", [*SCRIPTS, *SHEETS], ids=_name)
def test_a_file_is_short_and_begins_with_what_it_is(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith(("// ", "/* "))
    assert len(lines) <= MAX_LINES


def _rules() -> str:
    text = "".join(path.read_text() for path in SHEETS)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_every_class_of_the_stylesheets_is_drawn_somewhere() -> None:
    drawn = "".join(path.read_text() for path in OURS if path.suffix in {".js", ".html"})
    words = set(re.findall(r"[\w-]+", drawn))
    classes = set(re.findall(r"\.([a-z][\w-]*)", _rules()))
    assert len(classes) > 100
    assert [name for name in sorted(classes - words) if not MADE_UP.fullmatch(name)] == []


def test_the_stylesheets_define_what_they_use_and_use_what_they_define() -> None:
    rules = _rules()
    assert set(re.findall(r"var\((--[\w-]+)", rules)) == set(re.findall(r"(--[\w-]+):", rules))


def test_every_rule_of_the_stylesheets_is_in_a_layer() -> None:
    [order] = re.findall(r"@layer ([\w, ]+);", _rules())
    outside = re.compile(r"^(?!@layer |\}|\s).+", re.MULTILINE)
    assert outside.findall(_rules()) == []
    assert set(re.findall(r"@layer (\w+) \{", _rules())) == set(order.split(", "))


def test_every_icon_that_is_drawn_has_its_symbol() -> None:
    shapes = set(re.findall(r'<symbol id="g-(\w+)"', (STATIC / "index.html").read_text()))
    text = "".join(path.read_text() for path in SCRIPTS)
    named = set(re.findall(r'glyph\("(\w+)"\)', text))
    assert named
    assert named <= shapes
    assert [shape for shape in sorted(shapes) if f'"{shape}"' not in text] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_what_a_script_imports_exists_and_exports_it(path: Path) -> None:
    imports = re.findall(r'import (?:\{ ([^}]+) \}|\w+) from "([^"]+)"', path.read_text())
    imports += [("", found) for found in re.findall(r'import\("([^"]+)"\)', path.read_text())]
    for names, source in imports:
        target = (path.parent / source).resolve()
        exported = target.read_text()
        for name in filter(None, names.split(", ")):
            assert re.search(rf"export (async )?(function|const|class|let) {name}\b", exported), (
                name
            )


def test_the_shell_names_only_files_that_exist() -> None:
    named = re.findall(r'"/static/([^"]+)"', (STATIC / "index.html").read_text())
    assert named
    assert [name for name in named if not (STATIC / name).is_file()] == []


def test_the_licence_of_what_is_shipped_is_shipped_too() -> None:
    assert "MIT" in (STATIC / "vendor/uplot/LICENSE").read_text()
