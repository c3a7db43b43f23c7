"""Planted faults in bounds and time limits; `tests.mutants.faults` has all of them."""

from __future__ import annotations

from tests.mutants.planting import Fault

TIME = (
    Fault(
        "a heartbeat waits as long as the lease for a reply",
        "store/endpoint.py",
        "reply_timeout_s=min(self.reply_timeout_s, timeout_s),",
        "reply_timeout_s=self.reply_timeout_s,",
        "runtime/test_heartbeat.py::test_a_renewal_waits_for_half_the_time_to_the_next",
    ),
    Fault(
        "a scheduler whose clock is wrong leads",
        "chasqui/ops/leader.py",
        "CLOCKS_APART_MS = 5_000",
        "CLOCKS_APART_MS = 500_000_000_000",
        "chasqui/leader/test_scheduler_clocks.py::"
        "test_a_scheduler_whose_clock_is_wrong_fires_nothing_and_says_so",
    ),
    Fault(
        "a refused write is taken for a failure",
        "store/server_errors.py",
        '"MISCONF": StoreReadOnly',
        '"MISCONF": StoreError',
        "store/test_server_errors.py::"
        "test_only_what_the_server_says_before_it_does_anything_is_repeated",
    ),
    Fault(
        "a replica is taken for the primary",
        "store/endpoint.py",
        'return facts.get(b"role") in (b"replica", b"slave")',
        "return False",
        "store/primary/test_choice.py::test_the_role_of_a_server_is_read_from_its_reply",
    ),
    Fault(
        "each byte gives a frame its time again",
        "kqueue/budget.py",
        "            if not is_new and size:\n                now = before[1]\n            else:\n"
        "                del self._frames[client]",
        "            del self._frames[client]",
        "kqueue/test_budget.py::test_a_growing_frame_keeps_its_start_time",
    ),
    Fault(
        "a Spark lease waits for a reply until it is over",
        "spark/core/options.py",
        ".with_timeout(every_s / 2)",
        "",
        "spark/lease/test_process_identity.py::test_a_renewal_waits_for_half_the_time_to_the_next_and_no_longer",
    ),
    Fault(
        "a wait for a job that has ended takes a second too long",
        "chasqui/producer/results.py",
        "        await self._look_back(first_look_back(job_id))\n",
        "",
        "chasqui/producer/test_results_before.py::test_a_job_that_has_ended_is_settled_at_once",
    ),
    Fault(
        "a handler's time begins before the handler does",
        "rsmq/worker/threads.py",
        "            await asyncio.wait((call.started,))\n",
        "",
        "rsmq/worker/test_threads.py::test_the_timeout_of_a_handler_counts_from_its_start",
    ),
    Fault(
        "a worker's clock decides when a retry is due",
        "chasqui/ops/scripts/retry.lua",
        "time[1] * 1000 + math.floor(time[2] / 1000) + backoff_ms",
        "ts + backoff_ms",
        "chasqui/worker/test_worker_retry.py::"
        "test_a_retry_waits_by_the_server_s_clock_whatever_the_worker_s_shows",
    ),
    Fault(
        "peers are disconnected after a step of Redis's clock",
        "gomq/server/reaper.py",
        "return ahead_s - before_s > self._options.peer_timeout_s / CHECKS_PER_TIMEOUT",
        "return False",
        "gomq/server/test_reaper.py::"
        "test_peers_get_a_full_timeout_after_the_clock_of_redis_was_set_forward",
    ),
    Fault(
        "a GOMQ client sends heartbeats on a dead connection only",
        "gomq/client_heartbeat.py",
        "for opened in (channel, None):",
        "for opened in (channel or self._open(),) * 2:",
        "gomq/test_batch_heartbeats.py::test_a_dead_connection_costs_a_client_no_batch",
    ),
    Fault(
        "a busy GOMQ client sends no heartbeats",
        "gomq/client_heartbeat.py",
        "                self._thread.start()\n",
        "                pass\n",
        "gomq/test_batch_heartbeats.py::"
        "test_a_batch_handled_longer_than_the_peer_timeout_is_delivered_once",
    ),
)

CAPS = (
    Fault(
        "TLS handshakes do not count as connections",
        "kqueue/guard/admission.py",
        "broker.connections + handshakes <",
        "broker.connections <",
        "kqueue/test_server_life.py::test_unfinished_handshakes_count_as_connections",
    ),
    Fault(
        "one commit trims a whole journal",
        "journal/scripts/parts/readers.lua",
        "if lowest and dropped < TRIMMED / 2 then",
        "if lowest then",
        "journal/test_readers.py::test_one_commit_trims_a_part_of_a_large_journal",
    ),
    Fault(
        "one script prunes a whole fence",
        "spark/sink/scripts/prune_fence.lua",
        "'COUNT', 500",
        "'COUNT', 500000",
        "spark/sink/test_fence.py::test_one_script_prunes_a_page_of_a_large_fence",
    ),
    Fault(
        "the count of free slots is trusted for a minute",
        "chasqui/producer/producer.py",
        "COUNT_VALID_MS = 200",
        "COUNT_VALID_MS = 60_000",
        "chasqui/producer/test_producer_late.py::test_a_count_of_free_slots_is_valid_for_200_ms",
    ),
    Fault(
        "a quick add trims",
        "chasqui/ops/add.py",
        '"IDMP", producer, None, "*", "d", None)',
        '"IDMP", producer, None, "MAXLEN", "~", 1000, "*", "d", None)',
        "chasqui/producer/test_producer_late.py::test_the_command_drops_no_job",
    ),
    Fault(
        "a GOMQ consumer has a peer too many",
        "gomq/scripts/parts/join.lua",
        "if redis.call('SCARD', peers) >= max_peers then",
        "if redis.call('SCARD', peers) > max_peers then",
        "gomq/test_bounds.py::test_a_consumer_has_no_more_peers_than_it_may",
    ),
    Fault(
        "a GOMQ peer leaves all its keys in one script",
        "gomq/scripts/parts/leave.lua",
        "elseif #due < max_due then",
        "elseif true then",
        "gomq/test_bounds.py::test_a_peer_of_many_keys_leaves_them_in_bounded_steps",
    ),
    Fault(
        "one key of another type stops all queues that are followed",
        "spark/tail/reader.py",
        "if isinstance(outcome, WrongType) and queue not in self._selector.names:",
        "if False:",
        "spark/tail/test_reader_damage.py::test_a_found_queue_of_another_type_does_not_stop_others",
    ),
    Fault(
        "a password is sent to whoever has the port of another address",
        "store/local_login.py",
        "return Path(path) if host == listens else None",
        "return Path(path)",
        "embedded/test_access.py::test_no_password_is_sent_to_the_same_port_of_another_address",
    ),
    Fault(
        "unfinished frames hold memory without bound",
        "kqueue/broker.py",
        "if held > self.options.max_memory_bytes:",
        "if False:",
        "kqueue/test_broker.py::test_partial_frames_of_all_clients_together_are_bounded",
    ),
    Fault(
        "the default user of the embedded server administers it",
        "embedded/access.py",
        "+@all -@admin -@dangerous ",
        "+@all ",
        "embedded/test_access.py::test_the_default_user_does_no_administration",
    ),
    Fault(
        "a component without authentication listens beyond loopback",
        "serve/exposure.py",
        "if gomq.enabled and not (gomq.tls_cert and authenticates):",
        "if gomq.enabled and not (gomq.tls_cert or authenticates):",
        "serve/test_exposure.py::test_an_exposed_component_without_authentication_is_refused",
    ),
    Fault(
        "a batch exceeds the bound of a queue by one job",
        "chasqui/ops/scripts/add_batch.lua",
        "free_slots(stream, cap) < (#ARGV - 7) / 3",
        "free_slots(stream, cap) + 1 < (#ARGV - 7) / 3",
        "chasqui/producer/test_producer.py::test_a_batch_that_is_one_job_too_large_is_refused_whole",
    ),
    Fault(
        "a job that kills its workers is delivered for ever",
        "chasqui/decisions.py",
        "prior = max(envelope.attempt, deliveries - 1)",
        "prior = envelope.attempt",
        "chasqui/test_decisions.py::test_the_budget_is_counted_as_the_engine_counts_it",
    ),
    Fault(
        "a job that fails has one run too many",
        "chasqui/decisions.py",
        "or attempt >= _max_attempts(envelope, policy)",
        "or attempt > _max_attempts(envelope, policy)",
        "chasqui/test_decisions.py::test_a_dead_letter_keeps_what_the_engine_keeps",
    ),
    Fault(
        "a message beyond maxsize is stored",
        "rsmq/ops/scripts/send.lua",
        "if maxsize ~= -1 and tonumber(longest) > maxsize then",
        "if false then",
        "rsmq/test_bad_input.py::test_the_length_of_a_message_is_counted_in_bytes",
    ),
    Fault(
        "a journal exceeds its bound",
        "journal/scripts/parts/journal_entries.lua",
        "return journal.entries + entries <= journal.max_entries",
        "return journal.entries <= journal.max_entries",
        "journal/test_readers.py::test_a_commit_frees_space_in_a_full_journal",
    ),
    Fault(
        "a message is stored although it cannot be recorded",
        "journal/scripts/parts/journal_on_queue.lua",
        "if opened or fits(queue_journal(), entries, bytes) then",
        "if opened or fits(queue_journal(), 0, 0) then",
        "rsmq/ops/test_journal.py::test_a_full_journal_refuses_and_nothing_is_stored",
    ),
)
