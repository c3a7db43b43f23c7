-- dedup_window: remember the ids that a producer has added in the last 100 seconds.

-- XADD IDMP by default keeps 100 ids of a producer for 100 seconds. Keeping more ids is harmless.
local window_ms, window_ids = 100000, 1000

local function now_ms()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
end

local function is_in_window(window, id)
  local at = redis.call('ZSCORE', window, id)
  return at and tonumber(at) > now_ms() - window_ms
end

local function remember(window, id)
  local now = now_ms()
  redis.call('ZREMRANGEBYSCORE', window, '-inf', now - window_ms)
  redis.call('ZADD', window, now, id)
  redis.call('ZREMRANGEBYRANK', window, 0, -1 - window_ids)
  redis.call('PEXPIRE', window, window_ms)
end
