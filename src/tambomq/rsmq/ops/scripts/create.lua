#!lua
-- create: make a queue, unless there is one.
--
-- KEYS  queues   set   <ns>:QUEUES
--       data     hash  <ns>:<queue>:Q
-- ARGV  queue    its name
--       vt       seconds
--       delay    seconds
--       maxsize  bytes, or -1
-- REPLY 1 made, 0 there was one

local queues, data = KEYS[1], KEYS[2]
local queue, vt, delay, maxsize = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HEXISTS', data, 'vt') == 1 then
  return 0
end

-- First the set: if its key is of another type, nothing has been written yet.
redis.call('SADD', queues, queue)

local now = redis.call('TIME')[1]
redis.call('HSET', data, 'vt', vt, 'delay', delay, 'maxsize', maxsize,
  'created', now, 'modified', now)
return 1
