-- sweep: delete keys of a queue by pattern, on the queue's node.
--
-- KEYS  stream   stream  {chasqui:<queue>}:stream
-- ARGV  cursor   scan cursor; 0 to start
--       pattern  pattern of the keys
-- REPLY next position, and how many were deleted

local stream = KEYS[1]
local cursor, pattern = ARGV[1], ARGV[2]

-- The stream is only a routing key: SCAN must run on the queue's node.
redis.call('EXISTS', stream)
local next, found = unpack(redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000))
local deleted = 0
for _, key in ipairs(found) do
  deleted = deleted + redis.call('UNLINK', key)
end
return {next, deleted}
