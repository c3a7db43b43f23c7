#!lua flags=allow-oom
-- drop: forget a queue and all its messages.
--
-- KEYS  queues    set   <ns>:QUEUES
--       messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  queue     its name
-- REPLY 1 forgotten, 0 there was none

local queues, messages, data, receipts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local queue = ARGV[1]

-- UNLINK takes keys of any type; these only pass if they are ours.
redis.call('ZCARD', messages)
redis.call('HLEN', data)
redis.call('HLEN', receipts)

redis.call('SREM', queues, queue)
-- UNLINK, since a queue may hold millions of messages: memory is freed in the background.
redis.call('UNLINK', receipts)
return redis.call('UNLINK', messages, data) > 0 and 1 or 0
