#!lua flags=allow-oom
-- drop: delete a queue and all its messages.
--
-- KEYS  queues    set   <ns>:QUEUES
--       messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
--       bounds    hash  <ns>:<queue>:bounds
--       sizes     zset  <ns>:<queue>:bounds:sizes
-- ARGV  queue     its name
-- REPLY 1 deleted, 0 it did not exist

local queues, messages, data, receipts, bounds, sizes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local queue = ARGV[1]

-- UNLINK deletes keys of any type; these commands fail unless the types are right.
redis.call('ZCARD', messages)
redis.call('HLEN', data)
redis.call('HLEN', receipts)

redis.call('SREM', queues, queue)
-- UNLINK, since a queue may hold millions of messages: memory is freed in the background.
redis.call('UNLINK', receipts, bounds, sizes)
return redis.call('UNLINK', messages, data) > 0 and 1 or 0
