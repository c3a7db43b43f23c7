"""The data pipeline: what is in the queues and what passed through them, kept, told and moved."""
