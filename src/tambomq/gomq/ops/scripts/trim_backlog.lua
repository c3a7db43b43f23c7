#!lua flags=allow-oom
-- trim_backlog: remove the oldest messages of a main queue.
--
-- KEYS  queue  list  QUEUE_<key>
-- ARGV  count  how many at most
-- REPLY how many

local queue = KEYS[1]
local count = math.min(tonumber(ARGV[1]), redis.call('LLEN', queue))

redis.call('LTRIM', queue, count, -1)
return count
