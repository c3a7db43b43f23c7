#!lua flags=no-writes
-- attributes: a queue's settings, counters and sizes.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       bounds    hash  <ns>:<queue>:bounds
-- ARGV  none
-- REPLY vt, delay, maxsize, totalrecv, totalsent, created, modified, msgs, hiddenmsgs, now (ms),
--       then the fields of bounds and their values in turn, as a list; nil if the queue does not exist

local messages, data, bounds = KEYS[1], KEYS[2], KEYS[3]

local reply = redis.call('HMGET', data,
  'vt', 'delay', 'maxsize', 'totalrecv', 'totalsent', 'created', 'modified')
if not reply[1] then
  return nil
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
reply[8] = redis.call('ZCARD', messages)
-- A message that becomes visible in this very millisecond can be received, so it is not hidden.
reply[9] = redis.call('ZCOUNT', messages, '(' .. now, '+inf')
reply[10] = now
reply[11] = redis.call('HGETALL', bounds)
return reply
