"""The rules that tests mirror the sources: one test module for each module, or a row here.

And that `make test` runs some of that test module: a module that only slow tests know breaks
unseen until `make test-all`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rules import tree
from tests.rules.suite import OURS

# Modules without a test module of their name, and where they are tested: below tests/.
TESTED_IN: dict[str, str] = {
    "access/edits.py": "access/test_directory.py",
    "access/keys.py": "access/test_directory.py",
    "access/model.py": "access/test_decisions.py",
    "access/tokens.py": "access/test_decisions.py",
    "access/wire.py": "access/test_file.py",
    "alarms/keys.py": "alarms/test_ops.py",
    "bulk/audit.py": "pipeline/test_audit.py",
    "bulk/lease_model.py": "bulk/test_lease_calls.py",
    "bulk/states.py": "test_states.py",
    "bulk/lease_ops.py": "rsmq/bulk/test_lease.py",
    "chasqui/blocking_queue_admin.py": "chasqui/ops/test_admin.py",
    "chasqui/bulk/audit.py": "pipeline/test_audit.py",
    "chasqui/bulk/lease_admin.py": "chasqui/bulk/test_lease.py",
    "chasqui/bulk/lease_verdicts.py": "chasqui/bulk/test_lease.py",
    "chasqui/bulk/discard.py": "console/actions/test_operations.py",
    "chasqui/bulk/redrive.py": "pipeline/dlq/test_redrive.py",
    "chasqui/endpoint.py": "chasqui/test_queue.py",
    "chasqui/job_info.py": "chasqui/ops/test_jobs.py",
    "chasqui/ops/group_position.py": "chasqui/test_ownership.py",
    "chasqui/ops/events.py": "chasqui/test_events.py",
    "chasqui/options.py": "chasqui/worker/test_worker_refusals.py",
    "chasqui/producer/add_options.py": "chasqui/ops/test_add.py",
    "chasqui/producer/blocking_results.py": "chasqui/producer/test_results.py",
    "chasqui/producer/result_wait.py": "chasqui/producer/test_results_before.py",
    "chasqui/queue_admin.py": "chasqui/ops/test_admin.py",
    "chasqui/schedule/cron_parser.py": "chasqui/schedule/test_cron.py",
    "chasqui/states.py": "test_states.py",
    "chasqui/ops/cancel.py": "chasqui/worker/test_cancellations.py",
    "chasqui/worker/handler.py": "chasqui/worker/test_worker_handlers.py",
    "chasqui/worker/handler_pool.py": "chasqui/worker/test_worker_handlers.py",
    "chasqui/worker/outcomes.py": "chasqui/worker/test_control.py",
    "chasqui/worker/runner_cancellation.py": "chasqui/worker/test_worker_handlers.py",
    "chasqui/worker/job_reporter.py": "chasqui/worker/test_worker_progress.py",
    "chasqui/ops/edit.py": "console/actions/test_schedules.py",
    "cli/backup/restore.py": "cli/backup/test_backup.py",
    "cli/backup/shown.py": "cli/backup/test_backup.py",
    "cli/access/target.py": "cli/access/test_access.py",
    "cli/brokers/bodies.py": "cli/brokers/test_gomq.py",
    "cli/brokers/client.py": "cli/brokers/test_kqueue.py",
    "cli/brokers/gomq_observe.py": "cli/brokers/test_gomq.py",
    "cli/chasqui/bulk.py": "cli/chasqui/test_add.py",
    "cli/chasqui/client.py": "cli/chasqui/test_chasqui.py",
    "cli/chasqui/dlq.py": "cli/chasqui/test_manage.py",
    "cli/chasqui/events.py": "cli/chasqui/test_chasqui_running.py",
    "cli/chasqui/inspect.py": "cli/chasqui/test_manage.py",
    "cli/chasqui/leaders.py": "cli/chasqui/test_chasqui_running.py",
    "cli/chasqui/repeat.py": "cli/chasqui/test_manage.py",
    "cli/chasqui/tables.py": "cli/chasqui/test_manage.py",
    "cli/chasqui/values.py": "cli/chasqui/test_add.py",
    "cli/demo/brokers.py": "cli/demo/test_demo.py",
    "cli/demo/display.py": "cli/demo/test_demo.py",
    "cli/demo/live.py": "cli/demo/test_live_demo.py",
    "cli/demo/redis.py": "cli/demo/test_demo.py",
    "cli/demo/run.py": "cli/demo/test_demo.py",
    "cli/doctor/ask_machine.py": "cli/doctor/test_machine_checks.py",
    "cli/doctor/ask_server.py": "cli/doctor/test_doctor.py",
    "cli/doctor/commands.py": "cli/doctor/test_doctor.py",
    "cli/doctor/facts.py": "cli/doctor/test_server_checks.py",
    "cli/doctor/server_disk_checks.py": "cli/doctor/test_server_checks.py",
    "cli/entry.py": "cli/test_extras.py",
    "cli/input.py": "cli/rsmq/test_messages.py",
    "cli/lazy.py": "cli/test_main.py",
    "cli/pipeline/audit.py": "pipeline/test_audit.py",
    "cli/pipeline/client.py": "pipeline/test_commands.py",
    "cli/pipeline/compact.py": "pipeline/test_commands.py",
    "cli/pipeline/dlq.py": "pipeline/test_commands.py",
    "cli/pipeline/leases.py": "pipeline/test_leases.py",
    "cli/pipeline/migrate.py": "pipeline/transfer/test_migrate_command.py",
    "cli/pipeline/redrive.py": "pipeline/dlq/test_redrive_spark.py",
    "cli/pipeline/replay.py": "pipeline/transfer/test_replay_spark.py",
    "cli/pipeline/report.py": "pipeline/report/test_report.py",
    "cli/pipeline/run.py": "pipeline/ingest/test_run.py",
    "cli/pipeline/spark.py": "pipeline/test_terminal_spark.py",
    "cli/pipeline/sql.py": "pipeline/test_sql.py",
    "cli/rsmq/bodies.py": "cli/rsmq/test_messages.py",
    "cli/rsmq/client.py": "cli/rsmq/test_rsmq.py",
    "cli/rsmq/options.py": "cli/rsmq/test_rsmq.py",
    "cli/rsmq/queues.py": "cli/rsmq/test_rsmq.py",
    "cli/rsmq/render.py": "cli/rsmq/test_messages.py",
    "cli/times.py": "cli/rsmq/test_messages.py",
    "console/actions/actions.py": "console/actions/test_operations.py",
    "console/actions/letter_boxes.py": "console/actions/test_operations.py",
    "console/actions/model.py": "console/actions/test_summary.py",
    "chasqui/bulk/sample.py": "console/read/test_reader.py",
    "console/read/detail.py": "console/read/test_reader.py",
    "console/read/queues/broker_view.py": "console/read/test_reader.py",
    "console/read/queues/chasqui.py": "console/read/test_reader.py",
    "console/read/queues/gomq.py": "console/read/test_reader.py",
    "console/read/queues/kqueue.py": "console/read/test_reader.py",
    "console/read/queues/queue_sample.py": "console/read/test_rates.py",
    "console/read/queues/rsmq.py": "console/read/test_reader.py",
    "console/read/queues/sizes.py": "console/read/test_reader.py",
    "console/read/workers.py": "console/read/test_reader.py",
    "console/messages/gates.py": "console/messages/test_explain.py",
    "console/messages/situation.py": "console/messages/test_explain.py",
    "console/messages/lists/journal.py": "console/messages/lists/test_kqueue.py",
    "console/messages/lists/source.py": "console/messages/test_pages.py",
    "console/messages/reads/chasqui.py": "console/messages/test_details.py",
    "console/messages/reads/gomq.py": "console/messages/test_details.py",
    "console/messages/reads/history.py": "console/messages/test_details.py",
    "console/messages/reads/kqueue.py": "console/messages/test_details.py",
    "console/messages/reads/rsmq.py": "console/messages/test_details.py",
    "console/messages/views/chasqui.py": "console/messages/test_details.py",
    "console/messages/views/chasqui_situation.py": "console/messages/test_details.py",
    "console/messages/views/gomq.py": "console/messages/test_details.py",
    "console/messages/views/kqueue.py": "console/messages/test_details.py",
    "console/messages/views/rsmq.py": "console/messages/test_details.py",
    "console/http/console.py": "console/http/test_app.py",
    "console/http/handlers.py": "console/http/test_api.py",
    "console/http/login/certificate.py": "serve/test_http_certificates.py",
    "console/http/keys.py": "console/http/test_audit.py",
    "console/http/options.py": "console/http/login/test_access.py",
    "console/http/parts.py": "console/http/test_api.py",
    "console/http/requests.py": "console/http/test_api.py",
    "console/http/routes.py": "console/http/test_openapi.py",
    "console/http/stored_messages.py": "serve/test_console.py",
    "console/messages/model.py": "console/test_model.py",
    "cli/top/live.py": "cli/top/test_top.py",
    "cli/top/rows.py": "cli/top/test_screen.py",
    "embedded/command.py": "embedded/test_server.py",
    "embedded/datadir.py": "embedded/test_server.py",
    "embedded/ports.py": "embedded/test_server.py",
    "embedded/supervisor.py": "embedded/test_server.py",
    "gomq/async_client.py": "gomq/test_client.py",
    "gomq/client_heartbeat.py": "gomq/test_batch_heartbeats.py",
    "gomq/bulk/sample.py": "console/read/test_reader.py",
    "gomq/bulk/audit.py": "pipeline/test_audit.py",
    "gomq/bulk/lease_admin.py": "gomq/bulk/test_lease.py",
    "gomq/envoy/app_call.py": "gomq/envoy/test_app.py",
    "gomq/envoy/child.py": "gomq/envoy/test_process.py",
    "gomq/envoy/config.py": "gomq/envoy/test_process.py",
    "gomq/envoy/control.py": "gomq/envoy/test_process.py",
    "gomq/model.py": "gomq/test_bounds.py",
    "gomq/client_config.py": "gomq/test_client.py",
    "gomq/replies.py": "gomq/test_durable.py",
    "gomq/requests.py": "gomq/test_client.py",
    "gomq/server/backlog_bounds.py": "gomq/test_dead_letters.py",
    "gomq/server/durability.py": "gomq/test_durable.py",
    "gomq/server/grpc_handlers.py": "gomq/server/test_grpc_server.py",
    "gomq/server/probe.py": "gomq/server/test_health.py",
    "gomq/states.py": "test_states.py",
    "rsmq/worker/message_runs.py": "rsmq/worker/test_control.py",
    "jobs/context.py": "jobs/test_jobs.py",
    "jobs/decorator.py": "jobs/test_typing.py",
    "jobs/function.py": "jobs/test_jobs.py",
    "jobs/handle.py": "jobs/test_jobs.py",
    "jobs/hooks.py": "jobs/test_jobs.py",
    "jobs/options.py": "jobs/test_signature.py",
    "jobs/process_child.py": "jobs/test_processes.py",
    "jobs/worker.py": "jobs/test_jobs.py",
    "jobs/telemetry/keys.py": "jobs/telemetry/test_tracing.py",
    "jobs/telemetry/traced_queues.py": "jobs/telemetry/test_tracing.py",
    "jobs/testing/kit.py": "jobs/testing/test_due.py",
    "jobs/testing/recording.py": "jobs/testing/test_due.py",
    "journal/audit.py": "pipeline/test_audit.py",
    "journal/hooks.py": "rsmq/ops/test_journal.py",
    "kqueue/guard/admission.py": "kqueue/test_server_life.py",
    "kqueue/async_client.py": "kqueue/test_client.py",
    "kqueue/async_link.py": "kqueue/test_link.py",
    "kqueue/peer.py": "kqueue/test_server.py",
    "pipeline/gold_series.py": "pipeline/test_status.py",
    "pipeline/address.py": "pipeline/transfer/test_migrate.py",
    "pipeline/dlq/chasqui.py": "pipeline/dlq/test_redrive.py",
    "pipeline/dlq/issued.py": "pipeline/test_stored_sql.py",
    "pipeline/dlq/queues.py": "pipeline/dlq/test_redrive.py",
    "pipeline/dlq/rsmq.py": "pipeline/dlq/test_redrive.py",
    "pipeline/ingest/gold.py": "pipeline/ingest/test_silver.py",
    "pipeline/ingest/lifecycles.py": "pipeline/ingest/test_silver.py",
    "pipeline/ingest/snapshots.py": "pipeline/ingest/test_depths.py",
    "pipeline/lake/files.py": "pipeline/lake/test_lake_writers.py",
    "pipeline/lake/locks.py": "pipeline/lake/test_lake_writers.py",
    "pipeline/lake/tables.py": "pipeline/ingest/test_silver.py",
    "pipeline/report/depths.py": "pipeline/ingest/test_depths.py",
    "pipeline/sql_guard.py": "pipeline/test_stored_sql.py",
    "pipeline/transfer/bodies.py": "pipeline/transfer/test_migrate.py",
    "pipeline/transfer/chasqui.py": "pipeline/transfer/test_migrate.py",
    "pipeline/transfer/endpoints.py": "pipeline/transfer/test_migrate.py",
    "pipeline/transfer/gomq.py": "pipeline/transfer/test_migrate.py",
    "pipeline/transfer/pace.py": "pipeline/transfer/test_replay.py",
    "pipeline/transfer/rsmq.py": "pipeline/transfer/test_migrate.py",
    "rsmq/async_client.py": "rsmq/test_client.py",
    "rsmq/async_longpoll.py": "rsmq/test_longpoll.py",
    "rsmq/bulk/sample.py": "console/read/test_reader.py",
    "rsmq/bulk/audit.py": "pipeline/test_audit.py",
    "rsmq/bulk/edit.py": "console/actions/test_messages.py",
    "rsmq/bulk/discard.py": "console/actions/test_operations.py",
    "rsmq/bulk/lease_admin.py": "rsmq/bulk/test_lease.py",
    "rsmq/bulk/redrive.py": "rsmq/test_receipt_machine.py",
    "rsmq/states.py": "test_states.py",
    "runtime/signals.py": "rsmq/worker/test_worker.py",
    "runtime/heartbeat_process.py": "runtime/test_heartbeat.py",
    "runtime/renewal.py": "runtime/test_heartbeat.py",
    "runtime/tls_server.py": "kqueue/test_server_life.py",
    "serve/broker_component.py": "serve/test_brokers.py",
    "serve/component.py": "serve/test_process.py",
    "serve/gomq.py": "serve/test_brokers.py",
    "serve/kqueue.py": "serve/test_brokers.py",
    "serve/listeners.py": "serve/test_taken_ports.py",
    "serve/ready_file.py": "cli/test_serve_ready.py",
    "settings/sections.py": "settings/test_load.py",
    "spark/core/failing_reader.py": "spark/test_bad_input.py",
    "spark/core/id_bounds.py": "spark/core/test_filters.py",
    "spark/core/payload_types.py": "spark/core/test_payload.py",
    "spark/core/short_errors.py": "spark/test_bad_input.py",
    "spark/core/source.py": "spark/test_bad_input.py",
    "spark/core/table.py": "spark/formats/rsmq/test_tables.py",
    "spark/formats/chasqui/columns.py": "spark/formats/chasqui/test_streams.py",
    "spark/formats/chasqui/leased.py": "spark/lease/test_reader_formats.py",
    "spark/formats/chasqui/sink.py": "spark/sink/test_rows.py",
    "spark/formats/gomq/columns.py": "spark/formats/gomq/test_tables.py",
    "spark/formats/gomq/dates.py": "spark/formats/gomq/test_tables.py",
    "spark/formats/gomq/leased.py": "spark/lease/test_reader_formats.py",
    "spark/formats/gomq/sink.py": "spark/sink/test_writer_spark.py",
    "spark/formats/rsmq/leased.py": "spark/lease/test_reader_formats.py",
    "spark/formats/rsmq/sink.py": "spark/sink/test_writer_spark.py",
    "spark/formats/tambo/sink.py": "spark/sink/test_journal.py",
    "spark/formats/tambo/tables.py": "spark/formats/tambo/test_source.py",
    "spark/launch/cache.py": "spark/launch/test_java.py",
    "spark/launch/class_archive.py": "spark/launch/test_java.py",
    "spark/launch/conf.py": "spark/launch/test_session.py",
    "spark/launch/connect.py": "spark/test_cluster_connect.py",
    "spark/launch/worker_python.py": "spark/launch/test_session.py",
    "spark/lease/holder.py": "spark/lease/test_process_identity.py",
    "spark/lease/leased_source.py": "spark/lease/test_reader.py",
    "spark/sink/target.py": "spark/sink/test_writer_spark.py",
    "spark/tail/ops.py": "spark/tail/test_reader.py",
    "spark/tail/options.py": "spark/tail/test_reader.py",
    "spark/tail/plan.py": "spark/tail/test_reader.py",
    "store/durability/results.py": "store/durability/test_sync.py",
    "store/durability/stores.py": "store/durability/test_aio.py",
    "store/keys.py": "serve/test_health_writes.py",
    "store/local_login.py": "embedded/test_access.py",
    "store/probe.py": "serve/test_health_writes.py",
    "store/primary/aio.py": "store/primary/test_sync.py",
    "store/server_url.py": "store/test_endpoint.py",
    "work/options.py": "cli/test_work.py",
    "work/process/child.py": "work/test_handlers.py",
    "work/process/exits.py": "work/test_handlers.py",
    "work/process/imports.py": "work/process/test_targets.py",
    "work/process/memory.py": "work/test_handlers.py",
    "work/process/parent_link.py": "work/test_faults.py",
    "work/supervisor/slot.py": "work/test_handlers.py",
    "work/supervisor/supervisor.py": "work/test_faults.py",
    "work/supervisor/totals.py": "work/supervisor/test_metrics.py",
}

# Modules whose own tests are all slow: what `make test` runs of them.
QUICKLY_TESTED_IN: dict[str, str] = {
    "cli/pipeline/run.py": "pipeline/report/test_report.py",
    "cli/pipeline/spark.py": "pipeline/report/test_report.py",
    "jobs/decorator.py": "jobs/test_jobs.py",
    "pipeline/ingest/run.py": "pipeline/ingest/test_run_alone.py",
    "spark/launch/connect.py": "spark/launch/test_session.py",
    "work/process/child.py": "cli/test_work.py",
    "work/process/exits.py": "cli/test_work.py",
    "work/process/memory.py": "cli/test_work.py",
    "work/process/parent_link.py": "cli/test_work.py",
    "work/supervisor/slot.py": "cli/test_work.py",
    "work/supervisor/supervisor.py": "cli/test_work.py",
}


def untested_modules(root: Path) -> list[str]:
    """A module ``a/b.py`` is tested in ``tests/a/test_b.py``, or says where."""
    return [*_missing(root), *_stale(root)]


def slowly_tested_modules(root: Path) -> list[str]:
    """The test module of each module has a test that `make test` runs: one without a mark."""
    found = []
    for module in _modules(root):
        test = TESTED_IN.get(module, _mirror(module))
        is_quick = _has_quick_tests(root / "tests" / test)
        if (quick := QUICKLY_TESTED_IN.get(module)) is None:
            if not is_quick:
                found.append(f"{module}: make test runs nothing of tests/{test}")
        elif is_quick:
            found.append(f"{module} needs no row: make test runs tests/{test}")
        elif not _has_quick_tests(root / "tests" / quick):
            found.append(f"{module}: make test runs nothing of tests/{quick}")
    gone = QUICKLY_TESTED_IN.keys() - set(_modules(root))
    return found + [f"{module} has a row and does not exist" for module in sorted(gone)]


def _has_quick_tests(path: Path) -> bool:
    """Whether `make test` runs a test of the module; one that is missing breaks another rule."""
    return not path.exists() or any(map(_is_quick, _test_functions(ast.parse(path.read_text()))))


def _test_functions(module: ast.Module) -> Iterator[tuple[set[str], tree.Function]]:
    """Yield each test of a module, with the marks of the module."""
    marks = set[str]()
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = _marks(node.value)
    for function in tree.functions(module):
        if function.name.startswith("test_"):
            yield marks, function


def _is_quick(found: tuple[set[str], tree.Function]) -> bool:
    marks, function = found
    # A call is `parametrize` or the like: a mark inside it is that of one case.
    plain = (each for each in function.decorator_list if not isinstance(each, ast.Call))
    return not OURS & marks.union(*map(_marks, plain))


def _marks(node: ast.AST) -> set[str]:
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _missing(root: Path) -> Iterator[str]:
    for module in _modules(root):
        if module not in TESTED_IN and not (root / "tests" / _mirror(module)).exists():
            yield f"{module} has neither tests/{_mirror(module)} nor a row in tests/rules/mirror.py"


def _stale(root: Path) -> Iterator[str]:
    modules = set(_modules(root))
    for module, test in TESTED_IN.items():
        if module not in modules:
            yield f"{module} has a row in tests/rules/mirror.py and does not exist"
        elif (root / "tests" / _mirror(module)).exists():
            yield f"{module} needs no row: tests/{_mirror(module)} exists"
        if not (root / "tests" / test).exists():
            yield f"{module}: there is no tests/{test}"


def _modules(root: Path) -> Iterator[str]:
    for name, _ in tree.modules(root, "src/tambomq/"):
        module = name.removeprefix("src/tambomq/")
        if not module.endswith("__init__.py"):
            yield module


def _mirror(module: str) -> str:
    folder, _, name = module.rpartition("/")
    return f"{folder}/test_{name}".lstrip("/")
