#!lua
-- weigh: count the sizes of messages that were in a queue before it had a bound of bytes.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       bounds    hash  <ns>:<queue>:bounds
--       sizes     zset  <ns>:<queue>:bounds:sizes
-- ARGV  cursor    of ZSCAN
--       count     members per page, approximately
-- REPLY the next cursor

local messages, data, bounds, sizes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local cursor, count = ARGV[1], ARGV[2]

-- Without the bound nobody removes sizes.
if redis.call('HEXISTS', bounds, 'max_bytes') == 0 then
  return '0'
end
local page = redis.call('ZSCAN', messages, cursor, 'COUNT', count)
local added = 0
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local size = redis.call('HSTRLEN', data, id)
  -- A size that is known already is not counted again.
  if redis.call('ZADD', sizes, 0, id .. ' ' .. size) == 1 then
    added = added + size
  end
end
if added > 0 then
  redis.call('HINCRBY', bounds, 'bytes', added)
end
return page[1]
