#!lua flags=no-writes
-- find: look for keys of a queue, on the node where the queue is.
--
-- KEYS  stream   stream  {chasqui:<queue>}:stream
-- ARGV  cursor   where to go on, 0 to begin
--       pattern  what they look like
--       kind     of which type they are
-- REPLY where to go on, and the keys

local stream = KEYS[1]
local cursor, pattern, kind = ARGV[1], ARGV[2], ARGV[3]

-- Only the place of the stream matters: it leads to its node.
redis.call('EXISTS', stream)
return redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000, 'TYPE', kind)
