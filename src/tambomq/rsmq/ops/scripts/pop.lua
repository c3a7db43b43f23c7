#!lua flags=allow-oom
-- pop: receive the oldest visible message and delete it.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
--       bounds    hash  <ns>:<queue>:bounds
-- ARGV  none
-- REPLY now (ms), id, body, rc, fr; only now when nothing is visible; only 0 when there may be
--       more behind the ids without a body; nil if the queue does not exist
-- NEEDS expire, journal_on, journal_on_queue

local messages, data, receipts, bounds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local ttl_ms = redis.call('HGET', bounds, 'ttl_ms')
if ttl_ms and select(2, expire(messages, data, receipts, bounds, tonumber(ttl_ms), time, 500)) then
  close_journal()
  return {0}
end

-- Ids without a body are hidden for a while, as in receive.
for _ = 1, 1000 do
  local id = redis.call('ZRANGEBYSCORE', messages, '-inf', now, 'LIMIT', 0, 1)[1]
  if not id then
    return {now}
  end
  local stored = redis.call('HMGET', data, id, id .. ':rc', id .. ':fr')
  if stored[1] then
    redis.call('HDEL', receipts, id)
    redis.call('ZREM', messages, id)
    redis.pcall('HINCRBY', data, 'totalrecv', 1)
    redis.call('HDEL', data, id, id .. ':rc', id .. ':fr', id .. ':why')
    local rc = (tonumber(stored[2]) or 0) + 1
    delivered(id, rc)
    removed(id)
    close_journal()
    return {now, id, stored[1], rc, tonumber(stored[3]) or now}
  end
  redis.call('ZADD', messages, now + 30000, id)
end
return {0}
