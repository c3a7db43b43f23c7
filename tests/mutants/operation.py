"""Planted faults in what operators rely on: processes that are watched, files, limits, output."""

from __future__ import annotations

from tests.mutants.planting import Fault

OPERATION = (
    Fault(
        "a heartbeat process that died is missed",
        "runtime/heartbeat.py",
        "while self._ended() and not self._closed.is_set():",
        "while False:",
        "runtime/test_heartbeat.py::test_a_process_that_dies_is_replaced",
    ),
    Fault(
        "messages are received for threads that hang",
        "rsmq/worker/worker.py",
        "await self._threads.wait_ended(message)",
        "pass",
        "rsmq/worker/test_threads.py::"
        "test_no_message_is_received_while_hung_handlers_occupy_all_threads",
    ),
    Fault(
        "the headers of a request may take any time",
        "serve/http_limits.py",
        "self._timer = self.loop.call_later(self.limits.headers_s, self.drop)",
        "self._timer = None",
        "serve/test_http_limits.py::test_headers_that_drip_do_not_prolong_their_time",
    ),
    Fault(
        "a connection has any number of GOMQ peers",
        "gomq/server/auth.py",
        "            if len(names) >= self._max_names:\n",
        "            if False:\n",
        "gomq/test_bounds.py::test_a_connection_has_no_more_peers_than_it_may",
    ),
    Fault(
        "a queue name that makes no folder is used as one",
        "pipeline/lake/folders.py",
        'and len(re.sub(_LONG, "%25", queue)) <= _LONGEST',
        "and queue",
        "pipeline/lake/test_folders.py::test_a_name_that_cannot_be_a_folder_is_not_plain",
    ),
    Fault(
        "SQL that others have changed is resumed",
        "pipeline/dlq/issued.py",
        "words = [str(queue), redrive.id, redrive.where, redrive.rewrite]",
        "words = [str(queue), redrive.id]",
        "pipeline/test_stored_sql.py::test_a_redrive_is_resumed_by_its_user_with_the_same_sql_only",
    ),
    Fault(
        "the embedded server's memory has no bound",
        "embedded/server.py",
        "self._maxmemory = half_of_memory() if",
        "self._maxmemory = 0 if",
        "embedded/test_server.py::test_server_runs_as_a_queue_needs_it",
    ),
    Fault(
        "a data directory that was open stays open",
        "embedded/datadir.py",
        "path.chmod(0o700)",
        "pass",
        "embedded/test_access.py::test_a_directory_that_existed_becomes_private",
    ),
    Fault(
        "a formula reaches the spreadsheet",
        "cli/output.py",
        """return f"'{text}" if is_formula else text""",
        "return text",
        "pipeline/test_csv.py::test_formulas_are_written_as_text",
    ),
    Fault(
        "a job id forges a line of the log",
        "log.py",
        "message = spelled_out(record.getMessage())",
        "message = record.getMessage()",
        "test_log.py::test_a_job_id_forges_no_line_and_steers_no_terminal",
    ),
)
