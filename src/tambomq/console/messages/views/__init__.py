"""Message pages of each protocol, made of what was read. No Redis, no clock."""
