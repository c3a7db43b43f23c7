"""The worker: receives messages, runs handlers, settles and renews."""
