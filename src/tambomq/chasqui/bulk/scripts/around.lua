#!lua flags=no-writes
-- around: find the entries of a stream that are nearest to points in time.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream, or another of the queue
-- ARGV  point   …       milliseconds
-- REPLY for each the last id before it and the first from it on, '' where there is none

local stream = KEYS[1]
local found = {}
-- Reply only with ids: entries may be large and are not needed yet.
for _, point in ipairs(ARGV) do
  local before = redis.call('XREVRANGE', stream, '(' .. point .. '-0', '-', 'COUNT', 1)[1]
  local from = redis.call('XRANGE', stream, point .. '-0', '+', 'COUNT', 1)[1]
  found[#found + 1] = before and before[1] or ''
  found[#found + 1] = from and from[1] or ''
end
return found
