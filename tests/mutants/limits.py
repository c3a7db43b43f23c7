"""Planted faults in bounds and time limits; `tests.mutants.faults` has all of them."""

from __future__ import annotations

from tests.mutants.planting import Fault

TIME = (
    Fault(
        "a heartbeat waits as long as the lease for a reply",
        "store/connect.py",
        "reply_timeout_s=min(self.reply_timeout_s, timeout_s),",
        "reply_timeout_s=self.reply_timeout_s,",
        "store/test_heartbeat.py::test_a_renewal_waits_for_half_the_time_to_the_next",
    ),
    Fault(
        "a scheduler whose clock is wrong leads",
        "chasqui/lead_ops.py",
        "CLOCKS_APART_MS = 5_000",
        "CLOCKS_APART_MS = 500_000_000_000",
        "chasqui/test_scheduler_clocks.py::"
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
        "store/connect.py",
        'return facts.get(b"role") in (b"replica", b"slave")',
        "return False",
        "store/test_choice.py::test_a_role_is_read_where_it_is_told",
    ),
    Fault(
        "each byte gives a frame its time again",
        "kqueue/budget.py",
        "            if not is_new and size:\n                now = before[1]\n            else:\n"
        "                del self._frames[client]",
        "            del self._frames[client]",
        "kqueue/test_budget.py::test_a_frame_that_grows_keeps_the_time_of_its_first_byte",
    ),
    Fault(
        "a Spark lease waits for a reply until it is over",
        "spark/options.py",
        ".with_timeout(every_s / 2)",
        "",
        "spark/test_alive.py::test_a_renewal_waits_for_half_the_time_to_the_next_and_no_longer",
    ),
    Fault(
        "who waits for a job that has ended is told a second later",
        "chasqui/results.py",
        "        await self._look_back(first_look(job_id))\n",
        "",
        "chasqui/test_results_before.py::test_a_job_that_has_ended_is_settled_at_once",
    ),
    Fault(
        "a handler's time begins before the handler does",
        "rsmq/threads.py",
        "            await asyncio.wait((call.begun,))\n",
        "",
        "rsmq/test_worker_threads.py::test_the_time_of_a_handler_begins_when_it_does",
    ),
    Fault(
        "a worker's clock decides when a retry is due",
        "chasqui/scripts/retry.lua",
        "time[1] * 1000 + math.floor(time[2] / 1000) + backoff_ms",
        "ts + backoff_ms",
        "chasqui/test_worker_retry.py::"
        "test_a_retry_waits_by_the_server_s_clock_whatever_the_worker_s_shows",
    ),
    Fault(
        "peers are disconnected after a step of Redis's clock",
        "gomq/reaper.py",
        "return ahead_s - before_s > self._options.peer_timeout_s / LOOKS",
        "return False",
        "gomq/test_reaper.py::"
        "test_all_get_their_time_again_when_the_clock_of_redis_was_set_forward",
    ),
    Fault(
        "a GOMQ client relies on a connection that has gone silent",
        "gomq/client.py",
        "and self._channel is opened:",
        "and False:",
        "gomq/test_holding.py::test_a_silent_connection_costs_a_client_no_batch",
    ),
    Fault(
        "a busy GOMQ client is taken for silent",
        "gomq/client.py",
        "                self._keep()\n",
        "                pass\n",
        "gomq/test_holding.py::"
        "test_what_takes_a_client_longer_than_a_peer_may_be_silent_comes_once",
    ),
)

CAPS = (
    Fault(
        "the free places of a queue are relied on for a minute",
        "chasqui/production.py",
        "LOOK_EVERY_MS = 200",
        "LOOK_EVERY_MS = 60_000",
        "chasqui/test_overflow_late.py::"
        "test_what_was_seen_of_a_queue_is_relied_on_for_a_fifth_of_a_second",
    ),
    Fault(
        "a quick add trims",
        "chasqui/ops.py",
        '"IDMP", None, None, "*", "d", None)',
        '"IDMP", None, None, "MAXLEN", "~", 1000, "*", "d", None)',
        "chasqui/test_overflow_late.py::test_the_command_drops_no_job",
    ),
    Fault(
        "a GOMQ consumer has a peer too many",
        "gomq/scripts/parts/join.lua",
        "if redis.call('SCARD', peers) >= most_peers then",
        "if redis.call('SCARD', peers) > most_peers then",
        "gomq/test_bounds.py::test_a_consumer_has_no_more_peers_than_it_may",
    ),
    Fault(
        "a GOMQ peer leaves all its keys in one script",
        "gomq/scripts/parts/leave.lua",
        "elseif #due < most then",
        "elseif true then",
        "gomq/test_bounds.py::test_a_peer_of_many_keys_leaves_them_in_bounded_steps",
    ),
    Fault(
        "one key of another type stops all queues that are followed",
        "spark/tail.py",
        "if isinstance(outcome, WrongType) and queue not in self._wanted.names:",
        "if False:",
        "spark/test_tail_damage.py::test_a_queue_that_is_found_and_is_no_stream_stops_no_other",
    ),
    Fault(
        "a password is sent to whoever has the port of another address",
        "store/local_login.py",
        "return Path(path) if host == listens else None",
        "return Path(path)",
        "store/test_access.py::test_no_password_is_sent_to_the_same_port_of_another_address",
    ),
    Fault(
        "unfinished frames hold memory without bound",
        "kqueue/room.py",
        "if held > self.rules.max_memory_bytes:",
        "if False:",
        "kqueue/test_budget.py::test_unfinished_frames_of_all_clients_together_are_bounded",
    ),
    Fault(
        "the default user of the embedded server administers it",
        "store/access.py",
        "+@all -@admin -@dangerous ",
        "+@all ",
        "store/test_access.py::test_the_default_user_does_no_administration",
    ),
    Fault(
        "a door without a lock is opened to strangers",
        "serve/exposure.py",
        "if gomq.enabled and not (gomq.tls_cert and is_known):",
        "if gomq.enabled and not (gomq.tls_cert or is_known):",
        "serve/test_exposure.py::test_a_door_that_strangers_could_use_is_refused",
    ),
    Fault(
        "a batch exceeds the bound of a queue by one job",
        "chasqui/scripts/add_batch.lua",
        "room(stream, cap) < (#ARGV - 7) / 3",
        "room(stream, cap) + 1 < (#ARGV - 7) / 3",
        "chasqui/test_overflow.py::test_a_batch_that_is_one_job_too_large_is_refused_whole",
    ),
    Fault(
        "a job that kills its workers is delivered for ever",
        "chasqui/verdict.py",
        "prior = max(envelope.attempt, deliveries - 1)",
        "prior = envelope.attempt",
        "chasqui/test_verdict.py::test_the_budget_is_counted_as_the_engine_counts_it",
    ),
    Fault(
        "a job that fails has one run too many",
        "chasqui/verdict.py",
        "or ran >= _budget(envelope, rules)",
        "or ran > _budget(envelope, rules)",
        "chasqui/test_verdict.py::test_a_dead_letter_keeps_what_the_engine_keeps",
    ),
    Fault(
        "a message beyond maxsize is stored",
        "rsmq/scripts/send.lua",
        "if maxsize ~= -1 and tonumber(longest) > maxsize then",
        "if false then",
        "rsmq/test_bad_input.py::test_the_length_of_a_message_is_counted_in_bytes",
    ),
    Fault(
        "a journal exceeds its bound",
        "journal/scripts/parts/account.lua",
        "return account.entries + entries <= account.most_entries",
        "return account.entries <= account.most_entries",
        "journal/test_readers.py::test_a_full_journal_has_room_again_after_a_commit",
    ),
    Fault(
        "a message is stored although it cannot be recorded",
        "journal/scripts/parts/watched.lua",
        "if not opened and not fits(account(), due_entries, due_bytes) then",
        "if not opened and not fits(account(), 0, 0) then",
        "rsmq/test_recorded.py::test_a_full_journal_refuses_and_nothing_is_stored",
    ),
)
