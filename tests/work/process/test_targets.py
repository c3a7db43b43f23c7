"""What is found in modules, and the line that says why nothing was."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tambomq.errors import SettingsError
from tambomq.work.options import WorkOptions
from tambomq.work.process.run_recorder import RunRecorder
from tambomq.work.process.targets import load_targets

Write = Callable[..., None]

WORKERS = """
from tambomq.chasqui import Queue, Worker
from tambomq.jobs import Jobs
from tambomq.rsmq import RsmqWorker

def handle(job): ...

mail = Jobs("mail")
bills = Worker("bills", handle)
letters = RsmqWorker("letters", handle)
class Box: inner = bills
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module where the command would look for it."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)

    def write_module(body: str, name: str = "wk_app") -> None:
        file = tmp_path / (name.replace(".", "/") + ".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(body)

    yield write_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("wk_"):
            del sys.modules[name]


def refused(*names: str, queues: tuple[str, ...] = ()) -> str:
    with pytest.raises(SettingsError) as caught:
        load_targets(names, queues)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_all_objects_of_a_module_are_found_once(write: Write) -> None:
    write(WORKERS)
    write("from wk_app import mail, bills", "wk_other")
    found = load_targets(["wk_app", "wk_other"])
    assert [(each.source, each.kind, each.queue) for each in found] == [
        ("wk_app:mail", "Jobs", "mail"),
        ("wk_app:bills", "Worker", "bills"),
        ("wk_app:letters", "RsmqWorker", "letters"),
    ]


OPTIONS = """
from tambomq.jobs import Jobs
mail = Jobs("mail")

@mail.job
def welcome(to: str) -> None: ...

worker = mail.worker(limiter=(100, 60_000), store_results=False)
"""


def test_a_worker_with_options_stands_for_its_jobs(write: Write) -> None:
    write(OPTIONS)
    write("from wk_app import mail", "wk_other")
    (found,) = load_targets(["wk_other", "wk_app"])
    assert (found.source, found.kind) == ("wk_app:worker", "Worker")
    options = WorkOptions(targets=("wk_app",), concurrency=7)
    worker = found.worker(options, RunRecorder())
    assert worker is found.found
    described = found.describe(worker)
    assert (described.concurrency, described.jobs) == (7, ("welcome",))
    # Who names the jobs gets them without those options.
    assert [each.kind for each in load_targets(["wk_app:mail"])] == ["Jobs"]


def test_targets_can_be_chosen_by_name_or_queue(write: Write) -> None:
    write(WORKERS)
    assert [each.queue for each in load_targets(["wk_app:letters"])] == ["letters"]
    assert [each.queue for each in load_targets(["wk_app:Box.inner"])] == ["bills"]
    assert [each.queue for each in load_targets(["wk_app"], ["mail"])] == ["mail"]
    assert refused("wk_app", queues=("mial",)) == (
        "--queue mial: no target works on it; did you mean 'mail'?"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wk_app:mial", "wk_app has no 'mial'; did you mean 'wk_app:mail'?"),
        ("wk_app:handle", "wk_app:handle is a function, not a Jobs, Worker or RsmqWorker"),
        ("wk_ap", "there is no module 'wk_ap' in .*; did you mean 'wk_app'?"),
        ("wk_app.mail", "there is no module 'mail' in package 'wk_app'"),
        ("wk_app.py", "'wk_app.py' is a file, not a module: write `tambo work wk_app`"),
        ("shop/jobs.py", "'shop/jobs.py' is a file, not a module: write `tambo work shop.jobs`"),
        ("no module", "'no module' is not the name of a module"),
        (":mail", "'' is not the name of a module"),
    ],
)
def test_a_wrong_name_is_one_line_with_what_was_meant(name: str, said: str, write: Write) -> None:
    write(WORKERS)
    text = refused(name)
    assert said in text or re.search(said, text), text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "wk_app has no Jobs, Worker or RsmqWorker object; it is empty"),
        ("from tambomq.chasqui import Worker", "it imports Worker, but makes none"),
        ("from tambomq.chasqui import Queue\nq = Queue('q')", "; it has q (Queue)"),
        ("def handle(): ...", "; it has handle"),
        (
            "import wk_stripe",
            "No module named 'wk_stripe' (wk_app.py, line 1)",
        ),
        (
            "\n1 / 0",
            "wk_app: ZeroDivisionError: division by zero (wk_app.py, line 2)",
        ),
        ("def f(:", "cannot import wk_app: SyntaxError: "),
        ("raise SystemExit(4)", "cannot import wk_app: it calls sys.exit(4) (wk_app.py, line 1)"),
        (
            "from tambomq.jobs import Jobs\na = Jobs('m')\nb = Jobs('m')",
            "wk_app:a and wk_app:b are both Jobs of queue 'm'",
        ),
        (
            "from tambomq.jobs import Jobs\na = Jobs('m')\nb = Jobs('m').worker()",
            "wk_app:a and wk_app:b are both Jobs of queue 'm'",
        ),
    ],
)
def test_a_wrong_module_is_one_line(body: str, said: str, write: Write) -> None:
    write(body)
    assert said in refused("wk_app")
