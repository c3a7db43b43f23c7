"""Single messages: lists by state, search, bodies, timelines, and why a message is not running."""

from tambomq.console.messages.body import decode_body as decode_body
from tambomq.console.messages.details import read_message as read_message
from tambomq.console.messages.pages import list_messages as list_messages
