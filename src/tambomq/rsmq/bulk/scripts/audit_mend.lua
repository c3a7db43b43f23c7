#!lua flags=allow-oom
-- audit_mend: repair one fault of a queue, if it is still there.
--
-- KEYS  queues    set   <ns>:QUEUES
--       messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  what      which fault: a function below
--       item      an id or a field
--       queue     its name
-- REPLY 1 if it was repaired, else 0

local queues, messages, data = KEYS[1], KEYS[2], KEYS[3]
local what, item, queue = ARGV[1], ARGV[2], ARGV[3]

local mend = {}

function mend.bare()
  if not redis.call('ZSCORE', messages, item) or redis.call('HEXISTS', data, item) == 1 then
    return 0
  end
  redis.call('ZREM', messages, item)
  redis.call('HDEL', data, item .. ':rc', item .. ':fr', item .. ':why')
  return 1
end

function mend.body()
  if redis.call('ZSCORE', messages, item) or redis.call('HEXISTS', data, item) == 0 then
    return 0
  end
  local time = redis.call('TIME')
  redis.call('ZADD', messages, time[1] * 1000 + math.floor(time[2] / 1000), item)
  return 1
end

function mend.stray()
  local id = string.sub(item, 1, 32)
  if redis.call('ZSCORE', messages, id) or redis.call('HEXISTS', data, id) == 1 then
    return 0
  end
  return redis.call('HDEL', data, item)
end

function mend.sent()
  local size = redis.call('ZCARD', messages)
  local sent = tonumber(redis.call('HGET', data, 'totalsent') or '0')
  if sent and sent >= size then
    return 0
  end
  redis.call('HSET', data, 'totalsent', size)
  return 1
end

function mend.unlisted()
  if redis.call('HEXISTS', data, 'vt') == 0 then
    return 0
  end
  return redis.call('SADD', queues, queue)
end

function mend.listed()
  if redis.call('EXISTS', messages, data) > 0 then
    return 0
  end
  return redis.call('SREM', queues, queue)
end

return mend[what]()
