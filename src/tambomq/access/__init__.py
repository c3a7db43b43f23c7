"""Access to what TamboMQ serves: users, their rights to queues, their tokens and certificates."""
