#!lua flags=allow-oom
-- delete_one: forget a message and everything counted about it.
--
-- The same as delete of one, in three quarters of the time.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  id        the message
--       receipt   the rc (0: never received) it must still have, or ''
-- REPLY 1 forgotten, 0 not there or received by another since; nil when there is no such queue

local messages, data = KEYS[1], KEYS[2]
local id, receipt = ARGV[1], ARGV[2]

local stored = redis.call('HMGET', data, 'vt', id .. ':rc')
if not stored[1] then
  return nil
end
if receipt ~= '' and receipt ~= (stored[2] or '0') or redis.call('ZREM', messages, id) == 0 then
  return 0
end
redis.call('HDEL', data, id, id .. ':rc', id .. ':fr', id .. ':why')
return 1
