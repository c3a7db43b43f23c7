#!lua flags=no-writes
-- detail: read one message, and how many are or become visible before it.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  id        the message
--       bytes     of its body
-- REPLY id, score, size of the body (-1 without one), its head, rc, fr, reason, delivery record (nil
--       for missing fields) and rank; nothing if there is no such message; nil if the queue does not
--       exist

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]
local id, bytes = ARGV[1], tonumber(ARGV[2])

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end
local score = redis.call('ZSCORE', messages, id)
if not score then
  return {}
end
local stored = redis.call('HMGET', data, id, id .. ':rc', id .. ':fr', id .. ':why')
local body = stored[1]
return {id, score, body and #body or -1, body and body:sub(1, bytes), stored[2], stored[3], stored[4],
  redis.call('HGET', receipts, id), redis.call('ZRANK', messages, id)}
