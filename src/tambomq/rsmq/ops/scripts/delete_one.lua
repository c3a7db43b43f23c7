#!lua flags=allow-oom
-- delete_one: forget a message and everything counted about it.
--
-- The same as delete of one, in three quarters of the time.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  id        the message
--       receipt   the one that must still count, or ''
-- REPLY 1 forgotten, 0 not there or received by another since; nil when there is no such queue

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]
local id, receipt = ARGV[1], ARGV[2]

local stored = redis.call('HMGET', data, 'vt', id .. ':rc')
if not stored[1] then
  return nil
end
if receipt ~= '' and receipt ~= receipt_of(stored[2], redis.call('HGET', receipts, id)) then
  return 0
end
-- First the key that may not have been read: if it is of another type, nothing has been written.
redis.call('HDEL', receipts, id)
if redis.call('ZREM', messages, id) == 0 then
  return 0
end
redis.call('HDEL', data, id, id .. ':rc', id .. ':fr', id .. ':why')
return 1
