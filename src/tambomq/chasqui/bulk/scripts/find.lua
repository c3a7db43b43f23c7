#!lua flags=no-writes
-- find: find keys of a queue by pattern, on the queue's node.
--
-- KEYS  stream   stream  {chasqui:<queue>}:stream
-- ARGV  cursor   scan cursor; 0 to start
--       pattern  pattern of the keys
--       kind     type of the keys
-- REPLY next position, and the keys

local stream = KEYS[1]
local cursor, pattern, kind = ARGV[1], ARGV[2], ARGV[3]

-- The stream is only a routing key: SCAN must run on the queue's node.
redis.call('EXISTS', stream)
return redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000, 'TYPE', kind)
