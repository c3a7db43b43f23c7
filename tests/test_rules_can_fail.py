"""Every house rule fails when it is shown the repository with one thing wrong."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.rules import RULES, tree
from tests.rules.source import KEY

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "importlinter.ini"
KEY_MODULES = [name for name, _ in tree.modules(ROOT, "src/") if name.endswith("/keys.py")]

Break: TypeAlias = Callable[[Path], None]

SCRIPT = """\
#!lua
-- planted: do nothing.
--
-- KEYS  data  hash  <ns>
-- ARGV  id    a message
--       more  …     others
-- REPLY nil

local data, id = KEYS[1], ARGV[1]
for i = 2, #ARGV do redis.call('HDEL', data, id, ARGV[i]) end
return nil
"""


def write(path: str, text: str) -> Break:
    """Create *path*."""

    def plant(root: Path) -> None:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return plant


def change(path: str, old: str, new: str) -> Break:
    """Replace the first *old*, a pattern, in *path*."""

    def plant(root: Path) -> None:
        text, count = re.subn(old, new, (root / path).read_text(), count=1)
        assert count, f"{path} has no {old!r} to change"
        (root / path).write_text(text)

    return plant


def script(old: str = "", new: str = "") -> Break:
    """A script that keeps its contract but for *old*, which became *new*."""
    return write("src/tambomq/rsmq/scripts/planted.lua", SCRIPT.replace(old, new))


def module(text: str) -> Break:
    """A module of the package."""
    return write("src/tambomq/rsmq/planted.py", f'"""Planted."""\n{text}\n')


def crowd(folder: str) -> Break:
    """A folder with many modules more."""

    def plant(root: Path) -> None:
        for number in range(17):
            write(f"{folder}/planted{number}.py", '"""Planted."""\n')(root)

    return plant


def twin(line: str) -> Break:
    """One twin with a method the other does not have."""

    def plant(root: Path) -> None:
        for name, parsed in tree.modules(root, "src/tambomq/rsmq/"):
            if "AsyncRsmq" in tree.classes(parsed):
                change(name, r"(class AsyncRsmq.*:\n)", rf"\1    {line}\n")(root)

    return plant


BREAKS: list[tuple[str, Break]] = [
    ("every module has a docstring", write("src/tambomq/planted.py", "A = 1\n")),
    ("only keys.py spells Redis keys", module('KEY = "rsmq:QUEUES"')),
    ("only keys.py spells Redis keys", module('def key(q): return f"rsmq:{q}:Q"')),
    ("only keys.py spells Redis keys", module('def key(ns, q): return f"{ns}:{q}:Q"')),
    ("only keys.py spells Redis keys", module('KEY = b"{chasqui:" + q + b"}:stream"')),
    ("only keys.py spells Redis keys", module('KEY = "{tambo:rsmq:orders}:journal"')),
    ("only keys.py spells Redis keys", module('KEY = "CONSUMERS_" + key')),
    ("only keys.py spells Redis keys", module('KEY = b"LEASES_"')),
    ("only keys.py spells Redis keys", module('def key(q, id): return f"FENCE_{q}_{id}"')),
    ("only keys.py spells Redis keys", module('KEY = "HELD"')),
    ("only keys.py spells Redis keys", module('KEY = "tambo:probe"')),
    ("only keys.py spells Redis keys", module('def channel(name): return f"gomq:{name}"')),
    ("only keys.py spells Redis keys", module('def key(base): return f"{base}:stream"')),
    ("only keys.py spells Redis keys", module('def key(base, id): return f"{base}:lease:{id}"')),
    ("only keys.py spells Redis keys", module('KEY = base + ":redrives"')),
    ("only keys.py spells Redis keys", module('def client(*, ns="rsmq"): ...')),
    ("only keys.py spells Redis keys", module('option("--ns", default="rsmq")')),
    ("modules and functions fit in the head", module("A = 1\n" * 300)),
    ("modules and functions fit in the head", module("def f():" + "\n    g()" * 40)),
    ("modules and functions fit in the head", write("tests/test_planted.py", "A = 1\n" * 401)),
    ("folders are short lists", crowd("src/tambomq/rsmq/ops")),
    (
        "the drawn error tree is the real one",
        change(
            "src/tambomq/errors.py",
            r"class QueueExists\(QueueError\)",
            "class QueueExists(TamboError)",
        ),
    ),
    (
        "the drawn error tree is the real one",
        change(
            "src/tambomq/errors.py",
            r"\n\n\nclass ",
            "\n\n\nclass Planted(TamboError): ...\n\n\nclass ",
        ),
    ),
    ("tests mirror the sources", module("A = 1")),
    (
        "tests mirror the sources",
        write("tests/rsmq/test_async_client.py", '"""Tests of a module that has a row."""\n'),
    ),
    (
        "make test reaches every module",
        change("tests/rsmq/test_keys.py", r"\n\n\n", "\n\npytestmark = pytest.mark.slow\n\n\n"),
    ),
    ("tests do not sleep", write("tests/test_planted.py", "import time\ntime.sleep(0.2)\n")),
    (
        "tests do not sleep",
        write("tests/test_planted.py", "async def f(): await asyncio.sleep(1)\n"),
    ),
    (
        "tests have three marks",
        write("tests/test_planted.py", "import pytest\npytestmark = pytest.mark.slower\n"),
    ),
    (
        "make test leaves out the marked alone",
        change("Makefile", r"(NOT_RULES := .*)", r"\1 --ignore=tests/spark"),
    ),
    (
        "make test leaves out the marked alone",
        change("Makefile", r"\$\(PYTEST\) \$\(QUICK\)", "$(PYTEST) $(QUICK) -k rsmq"),
    ),
    (
        "make test leaves out the marked alone",
        change("pyproject.toml", 'addopts = "', 'addopts = "--deselect=tests/test_ids.py '),
    ),
    (
        "make test leaves out the marked alone",
        write("tests/spark/conftest.py", 'collect_ignore = ["test_tail.py"]\n'),
    ),
    (
        "tests assert no duration",
        write("tests/test_planted.py", "assert time.monotonic() - began < 3\n"),
    ),
    (
        "tests assert no duration",
        write("tests/test_planted.py", "assert 3 > time.perf_counter() - began\n"),
    ),
    ("scripts keep their contract", script("planted: do", "another: do")),
    ("scripts keep their contract", script("-- REPLY nil\n")),
    ("scripts keep their contract", script("KEYS[1], ARGV[1]", "KEYS[1], nil")),
    ("scripts keep their contract", script("KEYS[1]", "KEYS[2]")),
    ("scripts keep their contract", script("#ARGV", "9")),
    ("scripts keep their contract", script("--       more  …     others\n")),
    ("scripts keep their contract", script("data  hash", "information  hash")),
    (
        "scripts keep their contract",
        script("data, id, ARGV[i]", "'rsmq:QUEUES', data, id, ARGV[i]"),
    ),
    ("scripts need the parts they use", script("return nil", "return receipt_of(id)")),
    ("scripts need the parts they use", script("-- REPLY nil", "-- REPLY nil\n-- NEEDS receipts")),
    ("scripts need the parts they use", script("-- REPLY nil", "-- REPLY nil\n-- NEEDS nothing")),
    ("scripts are short", script("return nil", "redis.call('PING')\n" * 80 + "return nil")),
    ("twins are alike", twin("async def planted(self) -> None: ...")),
    ("exports are documented", write("src/tambomq/planted/__init__.py", '__all__ = ["Planted"]\n')),
    (
        "exports are documented",
        change("src/tambomq/rsmq/__init__.py", r"__all__ = \[", '__all__ = ["Planted", '),
    ),
    (
        "exports are documented",
        change("src/tambomq/errors.py", r"$", "\n\nclass Planted(TamboError): ...\n"),
    ),
    ("names are the field's words", module("def told(): ...")),
    ("names are the field's words", module("def send(who): ...")),
    ("names are the field's words", module("client.fates = []")),
    ("names are the field's words", module("class _Wire: ...")),
    ("names are the field's words", write("tests/test_planted.py", "def test_it_is_told(): ...")),
    ("names are the field's words", script("local data, id", "local mark, data, id")),
    ("names are the field's words", script("return nil", "local function tell() end")),
    ("class names are unique", module("class JobInfo: ...")),
    ("class names are unique", change("src/tambomq/rsmq/keys.py", "class Keys", "class AllKeys")),
    ("the glossary has every noun", module("class QueueDwelling: ...")),
    (
        "the glossary has every noun",
        change("docs/glossary.md", r"\n\| trouble \|.*", ""),
    ),
    (
        "nothing names a registry or a machine",
        write("docs/planted.md", "pip install -i https://pypi" + ".org/simple tambomq\n"),
    ),
    ("nothing names a registry or a machine", write("docs/planted.md", "see /" + "root/notes\n")),
    ("decisions fit on a page", write("docs/adr/0099-planted.md", "Why.\n" * 41)),
]

CONTRACT_BREAKS: list[tuple[str, Break]] = [
    ("packages", change("src/tambomq/errors.py", r"$", "\nimport tambomq.store.call\n")),
    ("packages", write("src/tambomq/planted.py", '"""In no layer."""\n')),
    ("inside", change("src/tambomq/rsmq/keys.py", r"$", "\nimport tambomq.rsmq.model\n")),
    ("pure", change("src/tambomq/rsmq/model.py", r"$", "\nimport time\n")),
    ("pure", change("src/tambomq/rsmq/ops/messages.py", r"$", "\nimport tambomq.clock\n")),
    ("redis", change("src/tambomq/rsmq/model.py", r"$", "\nimport redis\n")),
    ("grpc", change("src/tambomq/rsmq/model.py", r"$", "\nimport grpc\n")),
    ("pyspark", change("src/tambomq/rsmq/model.py", r"$", "\nimport pyspark\n")),
    (
        "executors",
        change("src/tambomq/spark/core/table.py", r"$", "\nimport tambomq.rsmq.client\n"),
    ),
    (
        "supervisor",
        change("src/tambomq/work/messages.py", r"$", "\nimport tambomq.work.process.memory\n"),
    ),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for path in tree.files(ROOT):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return tmp_path


@pytest.mark.parametrize(("rule", "plant"), BREAKS, ids=[rule for rule, _ in BREAKS])
def test_a_rule_sees_what_breaks_it(copy: Path, rule: str, plant: Break) -> None:
    before = RULES[rule](copy)
    plant(copy)
    assert set(RULES[rule](copy)) - set(before)


def test_every_rule_has_an_example_that_breaks_it() -> None:
    assert {rule for rule, _ in BREAKS} == RULES.keys()


@pytest.mark.parametrize("name", KEY_MODULES)
def test_the_rule_on_keys_knows_every_key_that_is_built(name: str) -> None:
    parsed = ast.parse((ROOT / name).read_text())
    assert not [text for text in built_keys(parsed) if not KEY.match(text)]


def built_keys(parsed: ast.Module) -> Iterator[str]:
    """Yield what a ``keys.py`` puts keys together from; NULs are what is filled in."""
    errors = [node for node in ast.walk(parsed) if isinstance(node, ast.Raise)]
    skipped = {id(each) for error in errors for each in ast.walk(error)}
    for node in ast.walk(parsed):
        if isinstance(node, ast.JoinedStr) and id(node) not in skipped:
            values = [
                each.value if isinstance(each, ast.Constant) else "\0" for each in node.values
            ]
            text = "".join(map(str, values))
            # No letters: put together from constants. Not keys: sentences, names of consumers.
            if re.search("[a-zA-Z]", text) and " " not in text and not text.startswith("spark-"):
                yield text
    for target, value in constants(parsed):
        if target.isupper() and re.search(r"[:_]$|\{|^[A-Z]+$|tambo:", value):
            yield value


def constants(parsed: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each constant text of a module, with its name."""
    for node in parsed.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text)))
            ):
                yield name, text


@pytest.mark.parametrize("text", ['"rsmq"', '"tambomq.rsmq"', '"rsmq://host"', '"rsmq: no queue"'])
def test_a_string_that_is_not_a_key_is_allowed_anywhere(copy: Path, text: str) -> None:
    before = RULES["only keys.py spells Redis keys"](copy)
    module(f"command({text})")(copy)
    assert RULES["only keys.py spells Redis keys"](copy) == before


def test_a_script_that_keeps_its_contract_is_not_reported(copy: Path) -> None:
    before = RULES["scripts keep their contract"](copy)
    script()(copy)
    assert RULES["scripts keep their contract"](copy) == before


@pytest.mark.parametrize(
    ("contract", "plant"), CONTRACT_BREAKS, ids=[contract for contract, _ in CONTRACT_BREAKS]
)
def test_a_contract_sees_what_breaks_it(copy: Path, contract: str, plant: Break) -> None:
    before = lint(copy, contract)
    assert before.returncode == 0, before.stdout
    plant(copy)
    after = lint(copy, contract)
    assert after.returncode == 1
    assert "0 kept, 1 broken" in after.stdout


def test_every_contract_has_an_example_that_breaks_it() -> None:
    config = configparser.ConfigParser()
    config.read(CONFIG)
    contracts = {s.rpartition(":")[2] for s in config.sections() if ":contract:" in s}
    assert {contract for contract, _ in CONTRACT_BREAKS} == contracts


def lint(root: Path, contract: str) -> subprocess.CompletedProcess[str]:
    """Ask import-linter about the package below *root*."""
    linter = str(Path(sys.executable).with_name("lint-imports"))
    command = [linter, "--config", str(CONFIG), "--no-cache", "--contract", contract]
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
