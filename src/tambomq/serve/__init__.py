"""Long-running processes, put together."""
