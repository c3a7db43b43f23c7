"""Publishing in chunks that are published once, as calls nobody has made yet.

A chunk and the token that says it was written are one script: whoever appends the chunk again,
after whatever went wrong, appends nothing. So each call may be repeated. A server finds the
messages when it next looks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.gomq import keys
from tambomq.gomq.appended import appended
from tambomq.journal.recording import Bounds
from tambomq.store.call import Arg, Call, load_script

_PUSH = load_script("tambomq.gomq", "sink_push")


def push(
    key: str,
    query: str,
    mark: Sequence[Arg],
    elements: Sequence[bytes],
    journal: Bounds | None = None,
) -> Call[int]:
    """Append *elements* to the main queue unless *mark* says they are there: 1, else 0.

    *mark* is the batch, the chunk's token and digest, and how many seconds to keep these; -1 means
    that another digest was kept, -2 that the batch is over. With *journal* they are recorded;
    raises `JournalFull`, and appends nothing.
    """
    where = (keys.queue(key), keys.fence(key, query))
    call = Call(_PUSH, where, (*mark, *elements), decode=int, repeatable=True)
    return appended(key, journal, call, elements)
