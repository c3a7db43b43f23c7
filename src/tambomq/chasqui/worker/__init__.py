"""The worker: fetches entries, runs handlers, settles jobs."""
