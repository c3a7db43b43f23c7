"""Which of several servers is the primary now: by a list, by Redis Sentinel, or by redirections."""
