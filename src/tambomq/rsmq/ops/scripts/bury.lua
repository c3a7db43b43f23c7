#!lua flags=allow-oom
-- bury: move a message to the dead-letter queue, which is created if necessary.
--
-- KEYS  messages       zset  <ns>:<queue>
--       data           hash  <ns>:<queue>:Q
--       queues         set   <ns>:QUEUES
--       dead_messages  zset  <ns>:<queue>-dead
--       dead_data      hash  <ns>:<queue>-dead:Q
--       receipts       hash  <ns>:<queue>:receipts
-- ARGV  id             the message; it keeps its id
--       receipt        the receipt that must still be valid, or ''
--       dead           name of the dead-letter queue
--       why            reason of the dead letter
--       channel        pub/sub channel, or ''
-- REPLY 1 moved, 0 not found or received again since; nil if the queue does not exist
-- NEEDS receipts, journal_on, journal_on_queue

local messages, data, queues, dead_messages, dead_data = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local receipts = KEYS[6]
local id, receipt, dead, why, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local vt = redis.call('HGET', data, 'vt')
if not vt then
  return nil
end

local stored = redis.call('HMGET', data, id, id .. ':rc')
local current = receipt_of(stored[2], redis.call('HGET', receipts, id))
if not stored[1] or (receipt ~= '' and receipt ~= current)
  or not redis.call('ZSCORE', messages, id) then
  return 0
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Read the keys first: one of another type then fails before anything is written.
redis.call('ZCARD', dead_messages)
local missing = redis.call('HEXISTS', dead_data, 'vt') == 0
redis.call('SADD', queues, dead)
redis.call('ZADD', dead_messages, now, id)
if missing then
  redis.call('HSET', dead_data, 'vt', vt, 'delay', 0, 'maxsize', -1,
    'created', time[1], 'modified', time[1])
end
redis.call('HSET', dead_data, id, stored[1])
-- A damaged counter must not make the script fail half-way.
redis.pcall('HINCRBY', dead_data, 'totalsent', 1)
redis.call('HSET', dead_data, id .. ':why', why)
if channel ~= '' then
  redis.call('PUBLISH', channel, redis.call('ZCARD', dead_messages))
end

redis.call('HDEL', receipts, id)
redis.call('ZREM', messages, id)
redis.call('HDEL', data, id, id .. ':rc', id .. ':fr', id .. ':why')
dead_lettered(id, why)
close_journal()
return 1
