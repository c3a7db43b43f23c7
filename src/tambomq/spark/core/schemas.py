"""The columns of every table, with descriptions. docs/reference/spark.md shows the same."""

from __future__ import annotations

from typing import Final

from tambomq.spark.core.columns import BYTES, DOUBLE, INT, LONG, TEXT, TIME, Column, Columns

_CLAIMED: Final = (
    Column("claim", TEXT, "the claim it was read from; `settle` needs it unchanged"),
    Column("fault", TEXT, "null; gone, changed or taken if it is not as it was claimed"),
)

RSMQ_MESSAGES: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("id", TEXT, "the message's id"),
    Column("body", BYTES, "the body; null if it is missing"),
    Column("sent_at", TIME, "when it was sent, as its id says"),
    Column("visible_at", TIME, "when it becomes visible"),
    Column("state", TEXT, "visible, hidden (received before) or delayed (never received)"),
    Column("rc", INT, "how often it was received"),
    Column("first_received_at", TIME, "when it was received for the first time"),
)

RSMQ_QUEUES: Final = Columns(
    Column("queue", TEXT, "its name"),
    Column("vt_s", DOUBLE, "seconds a received message stays hidden"),
    Column("delay_s", DOUBLE, "seconds before a sent message becomes visible"),
    Column("maxsize", INT, "the longest body in bytes; -1 for no limit"),
    Column("created_at", TIME, "when it was made"),
    Column("modified_at", TIME, "when its settings were changed last"),
    Column("total_sent", LONG, "messages ever sent"),
    Column("total_received", LONG, "receives ever made"),
    Column("messages", LONG, "messages in it now"),
    Column("hidden_messages", LONG, "of them, those that cannot be received now"),
)

RSMQ_LEASED: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("id", TEXT, "the message's id"),
    Column("body", BYTES, "the body; null if it is gone or was taken by another consumer"),
    Column("sent_at", TIME, "when it was sent, as its id says"),
    Column("rc", INT, "how often it was received, this time included"),
    Column("first_received_at", TIME, "when it was received for the first time"),
    *_CLAIMED,
)

_GOMQ_MESSAGE: Final = (
    Column("position", LONG, "its index in the list, from 0 on"),
    Column("id", TEXT, "the message's id, an xid"),
    Column("timestamp", TEXT, "when it was published, as its server wrote it"),
    Column("published_at", TIME, "the same as a time; null if it is ambiguous"),
    Column("payload", BYTES, "the payload; null if this is no message of GOMQ"),
    Column("error", TEXT, "what is wrong with it, or with its payload"),
    Column("raw", BYTES, "the stored bytes, if they are no message of GOMQ"),
)

GOMQ_MAIN: Final = Columns(
    Column("key", TEXT, "the key it was published to"),
    *_GOMQ_MESSAGE,
)

GOMQ_DEDICATED: Final = Columns(
    Column("key", TEXT, "the key it was published to"),
    Column("consumer", TEXT, "the consumer it waits for"),
    Column("peer", TEXT, "the peer of that consumer that it waits for"),
    *_GOMQ_MESSAGE,
)

GOMQ_LEASED: Final = Columns(
    Column("key", TEXT, "the key it was published to"),
    *_GOMQ_MESSAGE,
    Column("claim", TEXT, "the claim it was read from"),
    Column("fault", TEXT, "null; taken if the claim was released"),
)

GOMQ_SUBSCRIPTIONS: Final = Columns(
    Column("key", TEXT, "the key"),
    Column("consumer", TEXT, "the consumer subscribed to it"),
    Column("peer", TEXT, "a connected client of it; null where there is none"),
    Column("last_action_at", TIME, "when the peer last called; null if long ago"),
    Column("waiting", LONG, "messages in its dedicated queue; null where that is no list"),
)

_CHASQUI_JOB: Final = (
    Column("id", TEXT, "the job's id"),
    Column("name", TEXT, "its dispatch name; empty where it has none"),
    Column("payload", BYTES, "the user's value, as MessagePack"),
    Column("created_at", TIME, "when it was added, by its producer's clock"),
    Column("attempt", LONG, "runs it has had"),
    Column("max_attempts", LONG, "runs it may have; null where the worker decides"),
    Column("backoff", TEXT, "how it waits between runs, as JSON; null where the worker decides"),
)
_CHASQUI_DAMAGE: Final = (
    Column("error", TEXT, "why it cannot be read"),
    Column("raw", BYTES, "the stored bytes; all fields of the entry if it has no envelope"),
)
_CHASQUI_ENTRY: Final = (
    *_CHASQUI_JOB,
    Column("enqueued_at", TIME, "when the entry was written, from its id"),
    *_CHASQUI_DAMAGE,
)

CHASQUI_JOBS: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("entry_id", TEXT, "its entry id in the stream"),
    *_CHASQUI_ENTRY,
)

CHASQUI_LEASED: Final = Columns(
    *CHASQUI_JOBS,
    *_CLAIMED,
)

CHASQUI_DELAYED: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("due_at", TIME, "when it is due"),
    *_CHASQUI_JOB,
    *_CHASQUI_DAMAGE,
)

CHASQUI_DLQ: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("dlq_id", TEXT, "its entry id in the dead-letter stream"),
    Column("source_id", TEXT, "where it came from: an entry id of the stream, or a spec's key"),
    Column("reason", TEXT, "why it is dead"),
    Column("detail", TEXT, "the text of the handler's error, or what is wrong with the entry"),
    Column("error_type", TEXT, "the type of what the handler raised"),
    Column("traceback", TEXT, "where the handler raised it, bounded in length"),
    *_CHASQUI_JOB,
    Column("died_at", TIME, "when it was dead-lettered, from its id"),
    *_CHASQUI_DAMAGE,
)

CHASQUI_EVENTS: Final = Columns(
    Column("queue", TEXT, "the queue it happened in"),
    Column("entry_id", TEXT, "its entry id in the event stream"),
    Column("event", TEXT, "what happened"),
    Column("id", TEXT, "the job it happened to; null where it is about no job"),
    Column("name", TEXT, "the job's dispatch name; empty where it has none"),
    Column("ts", TIME, "when it happened, by the clock of the process that reports it"),
    Column("attempt", LONG, "which run of the job, from 1 on"),
    Column("duration_us", LONG, "microseconds that the handler took"),
    Column("backoff_ms", LONG, "milliseconds until the next run"),
    Column("delay_ms", LONG, "milliseconds until the first run"),
    Column("reason", TEXT, "what was raised, or why"),
    Column("count", LONG, "how many were trimmed"),
    Column("wait_ms", LONG, "milliseconds a worker waits for the limiter"),
    Column("percent", LONG, "progress of the job in percent"),
    Column("others", TEXT, "fields without a column, or that do not fit in theirs, as JSON"),
    Column("recorded_at", TIME, "when the entry was written, from its id"),
)

CHASQUI_REPEAT: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("key", TEXT, "the spec's key"),
    Column("name", TEXT, "the dispatch name of its jobs"),
    Column("pattern", TEXT, "when it fires, as keys have it"),
    Column("every_ms", LONG, "milliseconds from fire to fire"),
    Column("cron", TEXT, "the cron expression"),
    Column("tz", TEXT, "its time zone; null for UTC"),
    Column("next_fire_at", TIME, "when it fires next"),
    Column("payload", BYTES, "the user's value, as MessagePack"),
    Column("fires_at_most", LONG, "how often it fires at most"),
    Column("start_after", TIME, "not before"),
    Column("end_before", TIME, "not after"),
    Column("fired", LONG, "how often it has fired"),
    Column("missed_fires", TEXT, "skip, fire-once or fire-all"),
    Column("max_catchup", LONG, "of fire-all: the maximum number of missed fires to make"),
    Column("max_attempts", LONG, "runs each job may have; null where the worker decides"),
    Column("backoff", TEXT, "how they wait between runs, as JSON; null where the worker decides"),
    *_CHASQUI_DAMAGE,
)

CHASQUI_RESULTS: Final = Columns(
    Column("queue", TEXT, "the queue the job was in"),
    Column("id", TEXT, "the job's id"),
    Column("payload", BYTES, "what its handler returned, as MessagePack"),
    Column("expires_at", TIME, "when it expires; null for never"),
)

CHASQUI_PENDING: Final = Columns(
    Column("queue", TEXT, "the queue it is in"),
    Column("entry_id", TEXT, "its entry id in the stream"),
    Column("consumer", TEXT, "the consumer that holds it"),
    Column("idle_ms", LONG, "milliseconds since it was delivered or renewed"),
    Column("deliveries", LONG, "how often it was delivered"),
    *_CHASQUI_ENTRY,
)

TAMBO_JOURNAL: Final = Columns(
    Column("protocol", TEXT, "rsmq, chasqui, gomq or kqueue"),
    Column("queue", TEXT, "the queue it passed through"),
    Column("entry_id", TEXT, "its entry id in the journal"),
    Column("recorded_at", TIME, "when it was recorded, from its id"),
    Column("event", TEXT, "what happened: sent, or another event that its writer names"),
    Column("id", TEXT, "the message's id; null where the protocol has none"),
    Column("at", TIME, "when it happened"),
    Column("name", TEXT, "the name it was dispatched by"),
    Column("delay_ms", LONG, "how long it was delayed"),
    Column("attempt", LONG, "which receive of the message it was, from 1 on"),
    Column("targets", LONG, "the number of receivers"),
    Column("reason", TEXT, "why the message is dead"),
    Column("body", BYTES, "what was sent"),
)

# Columns that can be written. Only the body is required.

_GOES_TO: Final = Column(
    "queue", "STRING", "the queue it goes to; null for that of the option `queue`"
)

RSMQ_WRITTEN: Final = Columns(
    Column("body", "STRING or BINARY", "what is sent; text as UTF-8; never null"),
    _GOES_TO,
    Column("delay_s", "number", "seconds before it is visible; null for the queue's own"),
)

CHASQUI_WRITTEN: Final = Columns(
    Column("payload", "any type", "the job's data; BINARY is MessagePack as it is; never null"),
    Column("data", "any type", "the same by another name; only one of the two"),
    _GOES_TO,
    Column("name", "STRING", "its dispatch name; null for the option `name`"),
    Column("id", "STRING", "its id, added once; null for a new one"),
    Column("delay_ms", "whole number", "milliseconds before it is due; null for none"),
    Column("run_at", "TIMESTAMP", "when it is due; null for now"),
    Column("attempts", "whole number", "how often it may run; null where the worker decides"),
    Column("backoff", "whole number or STRUCT", "ms between runs, or `kind`, `delay_ms`, …"),
)

GOMQ_WRITTEN: Final = Columns(
    Column("payload", "STRING or BINARY", "what is published; text as UTF-8; never null"),
    Column("key", "STRING", "the key it is published to; null for that of the option `key`"),
)

TAMBO_WRITTEN: Final = Columns(
    Column("body", "STRING or BINARY", "what passed through; text as UTF-8; null for none"),
    Column("queue", "STRING", "the queue it belongs to; null for that of the option `queue`"),
    Column("event", "STRING", "what happened; null for sent"),
    Column("id", "STRING", "the message's id; null for none"),
    Column("at", "TIMESTAMP", "when it happened, to the millisecond; null for now"),
    Column("name", "STRING", "the name it was dispatched by; null for none"),
    Column("delay_ms", "whole number", "how long it was delayed; null for not at all"),
    Column("attempt", "whole number", "which receive of the message it was; null for none"),
    Column("reason", "STRING", "why the message is dead; null for none"),
)
