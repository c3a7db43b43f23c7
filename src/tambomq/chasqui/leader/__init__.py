"""The leader of a queue: promotes delayed jobs and fires recurring ones."""
