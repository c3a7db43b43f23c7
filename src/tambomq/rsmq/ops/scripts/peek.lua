#!lua flags=no-writes
-- peek: read messages in the order they are or become visible, changing nothing.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  first     rank of the first, from 0
--       count     how many at most
-- REPLY visible_at, id, body, rc, fr, why, receipt of each (nil for missing fields; an id
--       without a body is left out); nil if the queue does not exist
-- NEEDS receipts

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

local reply = {}
local listed = redis.call('ZRANGE', messages, first, first + count - 1, 'WITHSCORES')
for i = 1, #listed, 2 do
  local id = listed[i]
  local stored = redis.call('HMGET', data, id, id .. ':rc', id .. ':fr', id .. ':why')
  if stored[1] then
    local receipt = receipt_of(stored[2], redis.call('HGET', receipts, id))
    reply[#reply + 1] = {listed[i + 1], id, stored[1], stored[2], stored[3], stored[4], receipt}
  end
end
return reply
