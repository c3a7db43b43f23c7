-- hold: a backlog waits for others to subscribe, so that they share it.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Those whose time is over, or further ahead than it was ever set, are forgotten here, so that
-- there are never more than were subscribed to in one such time. A set that is none holds nothing.
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
