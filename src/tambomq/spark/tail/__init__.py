"""Streaming reads of Redis streams by entry id. Consumes nothing."""
