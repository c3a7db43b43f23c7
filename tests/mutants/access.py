"""Planted faults in who may do what; `tests.mutants.faults` has all of them."""

from __future__ import annotations

from tests.mutants.planting import Fault

ACCESS = (
    Fault(
        "a right is not looked at",
        "access/decisions.py",
        "return right in self.rights and self.covers(protocol, queue)",
        "return self.covers(protocol, queue)",
        "access/test_decisions.py::test_a_user_has_the_rights_it_was_given_and_no_other",
    ),
    Fault(
        "a pattern covers names that only begin like it",
        "access/decisions.py",
        "pattern.fullmatch(queue) is not None",
        "pattern.match(queue.split('\\n')[0]) is not None",
        "access/test_decisions.py::test_a_pattern_covers_whole_names",
    ),
    Fault(
        "an expired token is valid as long as it is cached",
        "access/directory.py",
        "return credential.expires is not None and credential.is_expired(self._now())",
        "return False",
        "access/test_directory.py::test_a_cached_token_expires_all_the_same",
    ),
    Fault(
        "any secret is right for the id of a token",
        "access/decisions.py",
        "        if not is_token_of(token, record):\n",
        "        if False:\n",
        "access/test_decisions.py::test_a_wrong_secret_of_a_known_id_is_refused",
    ),
    Fault(
        "a removed user keeps its session",
        "access/directory.py",
        "        if self._generation != directory.generation:\n",
        "        if False:\n",
        "access/test_directory.py::test_a_change_of_the_file_is_used_without_a_restart",
    ),
    Fault(
        "a file that others can write is used",
        "access/file.py",
        "if found.st_mode & 0o077:",
        "if False:",
        "access/test_file.py::test_a_file_that_others_may_use_is_refused",
    ),
    Fault(
        "a consumer of others' keys can be joined",
        "gomq/server/guarded_service.py",
        '        _require(caller, "receive", subscribed)\n',
        "",
        "gomq/server/test_guarded_service.py"
        "::test_a_consumer_of_others_keys_cannot_be_joined_nor_given_a_key",
    ),
    Fault(
        "one allowed key lets a whole batch through",
        "gomq/server/guarded_service.py",
        '"send", {record.key for record in request.records})',
        '"send", {record.key for record in request.records[:1]})',
        "gomq/server/test_guarded_service.py::test_each_method_needs_its_right_for_its_keys",
    ),
    Fault(
        "a frame behind an allowed one is not looked at",
        "kqueue/guard/peer.py",
        "yield from names_in(received.data, start, end, count)",
        "yield from names_in(received.data, start, end, 1)",
        "kqueue/guard/test_peer.py::test_a_frame_without_the_right_closes_the_connection",
    ),
    Fault(
        "a consumer keeps what its user has lost",
        "kqueue/server.py",
        "                peer.recheck()\n",
        "                pass\n",
        "kqueue/guard/test_peer.py::test_a_consumer_whose_user_loses_the_right_is_disconnected",
    ),
    Fault(
        "the console shows every user all queues",
        "console/http/scope/parts.py",
        "    if session is None:\n        return parts\n",
        "    if True:\n        return parts\n",
        "console/http/scope/test_parts.py::test_no_read_shows_a_queue_of_others",
    ),
    Fault(
        "a selection of another user can be used",
        "console/http/scope/actions.py",
        "if not queue or owner != user:",
        "if not queue:",
        "console/http/scope/test_actions.py::test_a_selection_of_another_user_cannot_be_used",
    ),
)
