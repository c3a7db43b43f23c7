"""The documentation is true: its code blocks are run, and its links and paths exist.

`docs_runner` says how pages are written.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import redis
from pyspark.sql import SparkSession

from tambomq import errors
from tambomq.chasqui import Queue, QueueEvents, Worker
from tambomq.cli.main import tambo
from tambomq.cli.rsmq.rsmqctl import rsmqctl
from tambomq.gomq import GomqClient, GomqServer
from tambomq.kqueue import Consumer, KqueueServer, Producer
from tambomq.rsmq import Rsmq, RsmqWorker
from tambomq.settings import load as settings
from tests import docs_blocks, docs_runner, sparking
from tests.docs_blocks import Untrue
from tests.docs_runner import ROOT, Page
from tests.servers import Server

METHODICAL = [
    *(Rsmq, RsmqWorker, Queue, QueueEvents, Worker),
    *(GomqClient, GomqServer, Consumer, KqueueServer, Producer),
]
README = ROOT / "README.md"
STANDALONE = [
    ROOT / "docs" / "guides" / name
    for name in ("typed-jobs.md", "coming-from.md", "console.md", "testing.md", "tracing.md")
]
"""Pages of which each block can be copied into an empty directory and run alone."""
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_SPARK = [path for path in PAGES if docs_blocks.uses_spark(path.read_text())]
PLAIN = [path for path in PAGES if path not in OF_SPARK]
COMMANDS_OF_SPARK = [path for path in PAGES if docs_blocks.spark_commands(path.read_text())]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:src|tests|docs|examples|benchmarks|scripts)/[\w./-]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def timed(pages: list[Path]) -> list[Any]:
    """Return *pages* as parameters, with the mark of those that take long."""
    guides = ("guides/pipeline.md", "guides/runbook.md", "guides/spark.md")
    long = (*guides, "reference/commands.md", "reference/spark.md")
    slow = (README, *(ROOT / "docs" / name for name in long))
    marks = {page: (pytest.mark.slow,) if page in slow else () for page in pages}
    return [pytest.param(page, marks=marks[page], id=name_of(page)) for page in pages]


@pytest.fixture
def page(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    docs_runner.redirect(monkeypatch, server)
    monkeypatch.setenv("REDIS_URL", server.url)
    return Page("page.md", server, tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", timed(PLAIN))
def test_the_code_blocks_of_a_page_do_what_it_shows(
    path: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs_runner.redirect(monkeypatch, server)
    monkeypatch.setenv("REDIS_URL", server.url)
    alone = path in STANDALONE
    Page(name_of(path), server, tmp_path, alone=alone, empty=alone).run(path.read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_block_of_the_readme_before_spark_runs_alone_and_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs_runner.redirect(monkeypatch, server)
    monkeypatch.setenv("REDIS_URL", server.url)
    page = Page("README.md", server, tmp_path, alone=True, empty=True)
    page.run(README.read_text().partition("\n## Spark in a minute\n")[0])
    assert page.left == set()


def run_with(
    spark: SparkSession, path: Path, server: Server, tmp_path: Path, *, in_process: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch, sparking.lent(spark):
        docs_runner.redirect(patch, server)
        patch.setenv("REDIS_URL", server.url)
        alone = path == README
        page = Page(name_of(path), server, tmp_path, in_process=in_process, alone=alone)
        page.run(path.read_text())
    if alone:
        with redis.Redis.from_url(server.url) as client:
            left = [key for key in client.scan_iter() if client.ttl(key) < 0]
        assert left == []
        assert {each.name for each in tmp_path.iterdir()} <= docs_runner.OWN_FILES


@pytest.mark.timeout(300)  # it may be the one that starts Spark
@pytest.mark.parametrize("path", timed(OF_SPARK))
def test_spark_code_blocks_of_a_page_run_in_the_shared_session(
    path: Path, spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    run_with(spark, path, server, tmp_path, in_process=True)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", COMMANDS_OF_SPARK, ids=name_of)
def test_spark_code_blocks_of_a_page_run_in_processes(
    path: Path, spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    run_with(spark, path, server, tmp_path, in_process=False)


@pytest.mark.interop
@pytest.mark.parametrize("tool", docs_runner.FOREIGN)
def test_the_tools_of_others_that_pages_show_are_installed(tool: str) -> None:
    assert docs_runner.is_installed(tool)


@pytest.mark.interop
def test_a_page_that_shows_the_tools_of_others_is_run_with_them(page: Page) -> None:
    page.run((ROOT / "docs/reference/gomq.md").read_text())


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_of_a_page_has_a_target(path: Path) -> None:
    assert list(_broken(path)) == []


def _broken(path: Path) -> Iterator[str]:
    text = path.read_text()
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in _anchors(found.read_text()):
            yield f"{target}: no such heading"
    for name in _FILE.findall(text):
        if not (ROOT / name).exists():
            yield f"{name}: no such file"


def _anchors(text: str) -> set[str]:
    # As git hosts spell them: lower case, words joined by dashes, no punctuation.
    headings = _HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / target).resolve() for target in _LINK.findall(index.read_text())}
    assert [name_of(page) for page in PAGES if page not in {*reached, index}] == []


def test_every_setting_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    names = [n for s in settings.specs() for n in (f"`{s.key}`", f"`{s.variable}`", f"`{s.flag}`")]
    assert [name for name in names if name not in text] == []


def test_every_error_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = [kind for kind in found if issubclass(kind, BaseException)]
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in text] == []


@pytest.mark.parametrize("kind", METHODICAL)
def test_every_method_and_parameter_is_in_the_reference(kind: type) -> None:
    package = kind.__module__.split(".")[1]
    text = (ROOT / f"docs/reference/{package}.md").read_text()
    section = text.partition(f"### `{kind.__name__}`")[2].partition("\n### ")[0]
    methods = [m for name, m in inspect.getmembers(kind, callable) if not name.startswith("_")]
    words = [
        word
        for function in (kind.__init__, *methods)  # type: ignore[misc]
        for word in (function.__name__, *inspect.signature(function).parameters)
        if word not in ("__init__", "self")
    ]
    assert [word for word in words if not re.search(rf"\b{word}\b", section)] == []


@pytest.mark.parametrize("program", [tambo, rsmqctl], ids=lambda program: str(program.name))
def test_every_command_and_option_is_in_the_reference(program: click.Group) -> None:
    text = (ROOT / "docs/reference/commands.md").read_text()
    assert [words for words in _words(program) if not any(word in text for word in words)] == []


def _words(command: click.Command) -> Iterator[list[str]]:
    """What can be typed: each name, and each option by any of its spellings."""
    yield [str(command.name)]
    yield from (option.opts for option in command.params if isinstance(option, click.Option))
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            yield from _words(found) if found else ()


# ── the runner itself can fail ───────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\nprint(1 + 1)  # 3\n```\n", "what happens\n2"),
        ("```python\nprint(1)\n```\n", "what happens\n1"),
        ("```console\n$ echo one\ntwo\n```\n", "what happens\none"),
        ("```console\n$ false\n```\n", "the last command exits 1"),
        ("```console\n$ false\n$ true\n```\n", "exit 1 before 'true'"),
        ("```console\n$ make coffee\n```\n", "no target 'coffee'"),
        ("```console\nno command\n```\n", "begins with a command"),
        ("```bash\ntrue\n```\n", "how to run 'bash'"),
        ("```sh\nfalse\n```\n", "exits 1"),
        ("```sh\necho one\n```\n\n```text\ntwo\n```\n", "what happens\none"),
        ("```sh\ntrue # why\n```\n", "not every shell takes it"),
        ("```sh\nls *\n```\n", "not every shell takes it"),
        ("```\ntrue\n```\n", "how to run 'a bare block'"),
        ("  ```python\n  1\n  ```\n", "a fence is indented"),
        ("```python\n1\n", "not closed"),
        ("```console\n$ echo <\n<ID>\n```\n", "syntax error"),
    ],
)
def test_a_page_that_does_not_do_what_it_shows_is_refused(
    page: Page, text: str, complaint: str
) -> None:
    with pytest.raises(Untrue, match=re.escape(complaint)):
        page.run(text)


def test_a_wrong_setting_is_refused(page: Page) -> None:
    with pytest.raises(errors.SettingsError, match="colour"):
        page.run("```toml\n[log]\ncolour = 'red'\n```\n")


def test_placeholders_stand_for_what_they_should(page: Page) -> None:
    id = "k" * 32
    page.run(
        f"```console\n$ printf '{id}\\na  b\\nc\\nd'\n<ID>\na b\n…\n$ echo x<ID>y\nx<ID>y\n"
        "$ false\n$ echo $?\n1\n```\n```text\nnothing\n```\n"
    )


def test_names_are_shared_and_the_default_address_is_the_tests_own(
    page: Page, server: Server
) -> None:
    page.run(
        "```python\nfrom tambomq.rsmq import Rsmq\nrsmq = Rsmq()\nrsmq.create_queue('a')\n```\n"
        "```python\nwith Rsmq('redis://127.0.0.1:6379') as other:\n"
        "    print(other.list_queues())  # ['a']\n```\n"
        '```console\n$ rsmqctl -r redis://127.0.0.1:6379 queue list\n["a"]\n```\n'
    )


def test_a_command_of_the_pipeline_is_called_in_this_process(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    page = Page("page.md", server, tmp_path, in_process=True)
    page.run("```console\n$ tambo pipeline audit rsmq\nLooked at 0 queues: all is well.\n```\n")
    with pytest.raises(Untrue, match="exits 3"):
        page.run("```console\n$ tambo pipeline dlq\ntambo: no dead letters\n```\n")
    page = Page("page.md", server, tmp_path / "other", in_process=True)
    with pytest.raises(Untrue, match="stand alone"):
        page.run("```console\n$ tambo pipeline audit | head\n```\n")


def test_serve_is_run_and_stopped(page: Page) -> None:
    page.run(
        '```console\n$ make run ARGS="--redis-port 7000"\n…\nredis  redis://127.0.0.1:7000  …\n'
        "…\n$ tambo serve --redis-url redis://127.0.0.1:1\n…\n$ echo $?\n1\n```\n"
    )
