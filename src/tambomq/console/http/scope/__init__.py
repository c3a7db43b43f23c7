"""What a user with rights to some queues sees and does: the parts of the console, filtered."""
