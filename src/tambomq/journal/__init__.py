"""The journal: what passed through a queue, kept in order, whatever became of it there."""
