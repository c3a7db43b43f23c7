#!lua flags=allow-oom
-- purge: delete all messages of a queue, keeping its settings and counters.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  field     …     fields of the hash to keep
-- REPLY how many messages there were; nil if the queue does not exist

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]

local kept = redis.call('HMGET', data, unpack(ARGV))
if not kept[1] then
  return nil
end

local size = redis.call('ZCARD', messages)
redis.call('HLEN', receipts)
redis.call('UNLINK', messages, data, receipts)
for i, field in ipairs(ARGV) do
  if kept[i] then
    redis.call('HSET', data, field, kept[i])
  end
end
return size
