"""The planted faults, by what they break. A guarantee that is worth a promise is worth a row here.

Change a row together with the code it quotes; a new fence, owner check, cap, time limit or commit
brings a row of its own.
"""

from __future__ import annotations

from tests.mutants.access import ACCESS
from tests.mutants.limits import CAPS, TIME
from tests.mutants.operation import OPERATION
from tests.mutants.planting import Fault

OWNERS = (
    Fault(
        "a stale ChasquiMQ consumer may settle",
        "chasqui/scripts/parts/is_owner.lua",
        "return not row.err and #row == 1",
        "return not row.err",
        "chasqui/test_ownership.py::test_a_consumer_that_lost_a_job_changes_nothing",
    ),
    Fault(
        "two leaders promote at once",
        "chasqui/scripts/parts/acquire_leadership.lua",
        "if leader and leader ~= holder then",
        "if leader and leader == '' then",
        "chasqui/leader/test_leader.py::test_a_stale_promoter_promotes_nothing",
    ),
    Fault(
        "a retry is stored in a form that the foreign leader destroys",
        "chasqui/ops/scripts/retry.lua",
        "elseif dialect == 'auto' and not has_engine(stream, lock, scheduler_lock, consumers, workers, delayed) then",  # noqa: E501  (as it stands there)
        "elseif dialect == 'auto' then",
        "chasqui/worker/test_worker_retry.py::"
        "test_where_another_engine_leads_a_retry_is_stored_as_it_reads_it",
    ),
    Fault(
        "a lease that is held is given to another query",
        "bulk/scripts/lease_attach.lua",
        "if held[1] and held[1] ~= owner and alive then",
        "if false then",
        "rsmq/bulk/test_lease.py::test_a_lease_is_one_query_s_while_that_is_alive",
    ),
    Fault(
        "the claim of a living query is given up",
        "bulk/scripts/lease_release.lua",
        "or now < (tonumber(lease[1]) or 0) or now < (tonumber(lease[2]) or 0) then",
        "then",
        "rsmq/bulk/test_lease.py::test_the_claim_of_a_dead_query_is_released_and_nothing_is_lost",
    ),
    Fault(
        "a query that was replaced ends the lease of its successor",
        "bulk/scripts/lease_resign.lua",
        "if redis.call('HGET', ledger, 'owner') ~= owner then",
        "if false then",
        "rsmq/bulk/test_lease.py::test_a_replaced_owner_changes_nothing_any_more",
    ),
    Fault(
        "a verdict about a claim that is over is written down",
        "bulk/scripts/lease_write_verdicts.lua",
        "elseif lease[3] ~= number or lease[4] ~= claim_token then",
        "elseif false then",
        "rsmq/bulk/test_lease.py::test_a_verdict_about_a_claim_that_is_over_is_refused",
    ),
    Fault(
        "a query that was replaced judges the messages of its successor",
        "bulk/scripts/lease_write_verdicts.lua",
        "if lease[1] ~= owner then",
        "if false then",
        "rsmq/bulk/test_lease.py::test_a_replaced_owner_changes_nothing_any_more",
    ),
    Fault(
        "a verdict about an earlier claim of the same number counts",
        "bulk/scripts/lease_write_verdicts.lua",
        " or lease[4] ~= claim_token then",
        " then",
        "rsmq/bulk/test_lease.py::"
        "test_a_verdict_about_a_claim_whose_number_is_used_again_is_refused",
    ),
    Fault(
        "a batch that is run again keeps the verdicts of its first run",
        "spark/lease/reader.py",
        "if token == holder.inherited_claim_token:",
        "if False:",
        "spark/lease/test_verdicts.py::test_a_batch_that_is_run_again_starts_without_verdicts",
    ),
    Fault(
        "rows of a claim that another query has by now are handed out",
        "spark/lease/reader.py",
        "if now != part.claim:",
        "if False:",
        "spark/lease/test_reader.py::test_a_replaced_owner_reads_claims_and_acknowledges_nothing",
    ),
)

RECEIPTS = (
    Fault(
        "a delete by an old receipt whose count fits",
        "rsmq/ops/scripts/delete_one.lua",
        "receipt == receipt_of(call('HGET', data, id .. ':rc'), call('HGET', receipts, id))",
        "receipt:match('^%d+') == (call('HGET', data, id .. ':rc') or '0')",
        "rsmq/test_receipts.py::test_a_receipt_is_void_after_a_failover_that_lost_its_receive",
    ),
    Fault(
        "a renewal by an old receipt whose count fits",
        "rsmq/ops/scripts/hide.lua",
        "receipt == current",
        "receipt:match('^%d+') == current:match('^%d+')",
        "rsmq/test_receipts.py::test_a_receipt_is_void_after_a_failover_that_lost_its_receive",
    ),
    Fault(
        "a record of an older delivery makes a receipt count",
        "rsmq/scripts/parts/receipts.lua",
        "if record and record:sub(1, #rc + 1) == rc .. '-' then",
        "if record then",
        "rsmq/test_receipts.py::test_a_receive_by_a_client_without_receipts_voids_a_receipt",
    ),
    Fault(
        "processes forked from one worker are one consumer",
        "chasqui/worker/worker.py",
        'consumer = self._consumer_id or f"{CONSUMER_PREFIX}{uuid.uuid4()}"',
        'consumer = self._consumer_id or f"{CONSUMER_PREFIX}{self._keys.queue}"',
        "chasqui/test_identity.py::"
        "test_processes_forked_from_one_worker_run_each_job_once_also_after_a_cut",
    ),
    Fault(
        "a job that came back to who still runs it is not renewed",
        "chasqui/worker/in_flight.py",
        "str(each.deliveries) for each in deliveries",
        "str(each.deliveries) for each in fresh",
        "chasqui/worker/test_in_flight.py::"
        "test_a_redelivered_entry_that_still_runs_is_renewed_and_not_run_again",
    ),
    Fault(
        "a GOMQ client in a forked child is its parent's peer",
        "gomq/client_config.py",
        "            draw_in_children(self)\n",
        "",
        "gomq/test_identity.py::"
        "test_a_client_in_a_forked_child_is_another_peer_unless_it_was_named",
    ),
    Fault(
        "a forked child makes the ids of its parent",
        "ids.py",
        "    for drawn in _of_this_process:\n        drawn.draw()",
        "    pass",
        "test_ids.py::test_a_forked_child_draws_names_of_its_own",
    ),
)

LAKE = (
    Fault(
        "a batch of an older checkpoint passes for a repetition",
        "pipeline/ingest/batch.py",
        " or self._batch.end == self._before.offset)",
        " or True)",
        "pipeline/ingest/test_batch.py::"
        "test_a_batch_of_an_older_checkpoint_is_refused_and_not_skipped",
    ),
    Fault(
        "the snapshot of a repeated batch is taken for written",
        "pipeline/ingest/run.py",
        " and not work.is_repetition:",
        ":",
        "pipeline/ingest/test_depths.py::"
        "test_a_snapshot_with_a_batch_that_the_lake_has_already_is_not_taken_for_written",
    ),
    Fault(
        "files are deleted that the log counts",
        "pipeline/lake/lake.py",
        "for path in {*paths} - self.log.named(paths):",
        "for path in paths:",
        "pipeline/lake/test_lake_writers.py::"
        "test_a_writer_interrupted_after_its_commit_deletes_nothing",
    ),
    Fault(
        "entries are dropped under a commit",
        "pipeline/lake/log.py",
        "return self._forget_before(at_ms) if is_alone else 0",
        "return self._forget_before(at_ms)",
        "pipeline/lake/test_lake_writers.py::"
        "test_entries_are_not_dropped_between_a_commits_look_and_its_link",
    ),
    Fault(
        "a number of the log is given twice",
        "pipeline/lake/log.py",
        "if found is None or found.number < whole:",
        "if found is None:",
        "pipeline/lake/test_lake_writers.py::test_the_number_of_a_dropped_entry_is_not_used_again",
    ),
    Fault(
        "files of a batch that takes long are deleted",
        "pipeline/lake/compact.py",
        "since_ms = min(now_ms, writing_ms or now_ms) - KEPT_MS",
        "since_ms = now_ms - KEPT_MS",
        "pipeline/lake/test_lake_writers.py::"
        "test_files_of_a_batch_that_takes_longer_than_an_hour_are_kept",
    ),
    Fault(
        "a move's fence ends before the move",
        "rsmq/bulk/scripts/move_put.lua",
        "redis.call('PERSIST', fence)",
        "redis.call('EXPIRE', fence, 604800)",
        "pipeline/test_move_fences.py::test_a_move_that_was_killed_goes_on_after_more_than_a_week",
    ),
)

ORDER = (
    Fault(
        "newer GOMQ messages overtake those that go back",
        "gomq/ops/scripts/dispatch.lua",
        "if leaving then",
        "if false then",
        "gomq/test_bounds.py::test_nothing_is_dispatched_before_older_messages_are_requeued",
    ),
    Fault(
        "a job is acknowledged before its dead letter is written",
        "chasqui/ops/scripts/bury.lua",
        "redis.call('XADD', dlq, '*', unpack(row))\nackdel(stream, group, {entry})",
        "ackdel(stream, group, {entry})\nredis.call('XADD', dlq, '*', unpack(row))",
        "chasqui/test_ownership.py::"
        "test_a_dead_letter_that_cannot_be_written_leaves_the_job_where_it_is",
    ),
    Fault(
        "the last promoted job stays delayed and runs twice",
        "chasqui/ops/scripts/promote.lua",
        "'ZREMRANGEBYRANK', delayed, 0, #due - 1",
        "'ZREMRANGEBYRANK', delayed, 0, #due - 2",
        "chasqui/leader/test_promoter.py::test_a_delayed_job_waits_for_a_worker_when_it_is_due",
    ),
    Fault(
        "a batch that was given up counts as delivered",
        "spark/lease/reader.py",
        "if (state.claim, state.claim_token) != (number, token):",
        "if False:",
        "spark/lease/test_reader.py::test_a_holder_that_returns_too_late_learns_that_others_have_its_messages",
    ),
    Fault(
        "a move is over while messages are on their way",
        "bulk/scripts/move_over.lua",
        " or redis.call('EXISTS', transit) == 1 then",
        " then",
        "bulk/test_moves.py::test_a_move_does_not_end_while_a_batch_is_in_transit",
    ),
    Fault(
        "a journal forgets what its slowest reader has not read",
        "journal/scripts/parts/readers.lua",
        "if id and (not lowest or is_later(lowest, id)) then",
        "if id and (not lowest or is_later(id, lowest)) then",
        "journal/test_readers.py::test_the_slowest_reader_decides",
    ),
    Fault(
        "a reader's older commit takes it back",
        "journal/scripts/commit.lua",
        "if not noted or is_later(id, noted) then",
        "if true then",
        "journal/test_readers.py::test_an_older_commit_changes_nothing",
    ),
)

ONCE = (
    Fault(
        "what a credential provider raises ends a worker",
        "store/endpoint.py",
        "        raise StoreUnavailable(text) from error\n",
        "        raise\n",
        "rsmq/worker/test_worker_faults.py::"
        "test_a_credential_provider_that_fails_for_a_while_ends_no_worker",
    ),
    Fault(
        "what may not be repeated is repeated after a lost reply",
        "store/roundtrip.py",
        "if self._calls[index].repeatable:",
        "if True:",
        "store/test_roundtrip.py::test_only_repeatable_calls_are_repeated_after_a_broken_connection",
    ),
    Fault(
        "a chunk of a sink is sent again",
        "bulk/scripts/parts/fence.lua",
        "  if known[1] then\n    return known[1] == digest and 0 or -1\n  elseif",
        "  if known[1] and known[1] ~= digest then\n    return -1\n  elseif",
        "rsmq/bulk/test_sink.py::test_a_chunk_that_is_sent_twice_is_there_once",
    ),
    Fault(
        "a batch below the fence's floor is written",
        "bulk/scripts/parts/fence.lua",
        "tonumber(batch) < tonumber(known[2]) then",
        "false then",
        "rsmq/bulk/test_sink.py::test_nothing_is_sent_for_a_batch_below_the_floor",
    ),
    Fault(
        "other rows under a token pass for the same",
        "bulk/scripts/parts/fence.lua",
        "    return known[1] == digest and 0 or -1\n",
        "    return 0\n",
        "journal/test_sink.py::"
        "test_other_entries_under_a_token_or_a_batch_that_is_over_are_not_recorded",
    ),
    Fault(
        "a fence's floor sinks",
        "spark/sink/scripts/prune_fence.lua",
        "math.max(before, first_batch)",
        "first_batch",
        "spark/sink/test_fence.py::test_the_floor_of_a_fence_never_decreases",
    ),
    Fault(
        "a claim of another checkpoint is ended",
        "bulk/scripts/parts/claims.lua",
        "(tonumber(lease[4]) ~= number or lease[5] ~= claim_token)",
        "tonumber(lease[4]) ~= number",
        "rsmq/bulk/test_lease.py::test_another_checkpoint_s_claim_is_neither_ended_nor_counted",
    ),
    Fault(
        "an earlier batch's arrival forgets the next",
        "bulk/scripts/move_arrived.lua",
        "if redis.call('HGET', move, 'number') ~= number or ",
        "if ",
        "bulk/test_moves.py::test_the_arrival_of_an_earlier_batch_keeps_the_next_one_in_transit",
    ),
    Fault(
        "an undone redrive is said to be done",
        "bulk/scripts/redrive_settle.lua",
        "if not now or now == 'undone' then",
        "if not now then",
        "bulk/test_redrives.py::test_a_redrive_that_was_undone_stays_undone",
    ),
)

DURABLE = (
    Fault(
        "too few replicas are taken for enough",
        "store/durability/waits.py",
        "found >= self.asked.replicas",
        "found >= 0",
        "store/durability/test_sync.py::"
        "test_fewer_replicas_than_asked_for_are_an_error_with_the_result",
    ),
    Fault(
        "a wait in another history confirms",
        "store/durability/confirmation.py",
        "if lived is None or lived != history(after) or (refusal and is_transient(refusal)):",
        "if refusal and is_transient(refusal):",
        "store/durability/test_confirmation.py::test_a_wait_in_another_history_confirms_nothing",
    ),
    Fault(
        "a repeated call that writes nothing waits for nothing",
        "store/durability/confirmation.py",
        "return redis.call('SET', KEYS[1], '', 'NX') and redis.call('DEL', KEYS[1]) or 0",
        "return 1",
        "store/durability/test_sync.py::"
        "test_a_repeated_call_that_writes_nothing_waits_for_what_it_found",
    ),
    Fault(
        "a wait that broke off confirms",
        "store/durability/confirmation.py",
        "return again + self._unproven(done, _BROKE)",
        "return again",
        "store/durability/test_confirmation.py::"
        "test_a_connection_that_breaks_in_the_wait_confirms_nothing",
    ),
    Fault(
        "WAITAOF is believed before the fsync",
        "store/durability/waits.py",
        "if not any(idle[:_BEFORE]) or not ended:",
        "if False:",
        "store/durability/test_waits.py::"
        "test_an_fsync_that_may_have_begun_before_the_write_is_no_proof",
    ),
    Fault(
        "what is not confirmed is returned as if it were",
        "store/durability/results.py",
        "raise self._error\n",
        "return result\n",
        "store/durability/test_sync.py::test_a_plan_sees_what_it_did_and_fails_at_its_end",
    ),
)

FAULTS = (*DURABLE, *OWNERS, *RECEIPTS, *TIME, *LAKE, *ORDER, *ONCE, *CAPS, *ACCESS, *OPERATION)
