#!lua
-- create: create a queue, unless it exists.
--
-- KEYS  queues   set   <ns>:QUEUES
--       data     hash  <ns>:<queue>:Q
-- ARGV  queue    its name
--       vt       seconds
--       delay    seconds
--       maxsize  bytes, or -1
-- REPLY 1 created, 0 it existed

local queues, data = KEYS[1], KEYS[2]
local queue, vt, delay, maxsize = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HEXISTS', data, 'vt') == 1 then
  return 0
end

-- The set first: if it is of another type, the script fails before anything else is written.
redis.call('SADD', queues, queue)

local now = redis.call('TIME')[1]
redis.call('HSET', data, 'vt', vt, 'delay', delay, 'maxsize', maxsize,
  'created', now, 'modified', now)
return 1
