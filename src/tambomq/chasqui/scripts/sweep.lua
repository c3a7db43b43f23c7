-- sweep: forget keys of a queue, on the node where the queue is.
--
-- KEYS  stream   stream  {chasqui:<queue>}:stream
-- ARGV  cursor   where to go on, 0 to begin
--       pattern  what they look like
-- REPLY where to go on, and how many were forgotten

local stream = KEYS[1]
local cursor, pattern = ARGV[1], ARGV[2]

-- Only the place of the stream matters: it leads to its node.
redis.call('EXISTS', stream)
local next, found = unpack(redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', 1000))
local gone = 0
for _, key in ipairs(found) do
  gone = gone + redis.call('UNLINK', key)
end
return {next, gone}
