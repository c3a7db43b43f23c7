-- hold: delay the dispatch of a backlog, so that peers that subscribe soon share it.

-- Expired entries, and those too far in the future, are removed here, so that the set stays small.
-- A key of another type counts as no held backlog.
local function hold(held, key, hold_ms)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.pcall('ZREMRANGEBYSCORE', held, '-inf', string.format('%.0f', now))
  redis.pcall('ZREMRANGEBYSCORE', held, string.format('(%.0f', now + hold_ms), '+inf')
  local added = redis.pcall('ZADD', held, string.format('%.0f', now + hold_ms), key)
  if type(added) == 'number' then
    redis.call('PEXPIRE', held, hold_ms)
  end
end
