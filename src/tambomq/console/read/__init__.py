"""The reading side of the console: queues are found, sampled and judged. Nothing here writes."""
