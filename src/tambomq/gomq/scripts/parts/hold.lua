-- hold: delay the dispatch of a backlog, so that peers that subscribe soon share it.

-- An entry stays after its time until the key is dispatched: an Observe that comes before that learns
-- from it that a dispatch is due. Keys of which all peers have left are never dispatched: old entries
-- are removed here, and those too far in the future, so that the set stays small.
-- A key of another type counts as no held backlog.
local UNDISPATCHED_MS = 60000
local function hold(held, key, hold_ms)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.pcall('ZREMRANGEBYSCORE', held, '-inf', string.format('%.0f', now - UNDISPATCHED_MS))
  redis.pcall('ZREMRANGEBYSCORE', held, string.format('(%.0f', now + hold_ms), '+inf')
  local added = redis.pcall('ZADD', held, string.format('%.0f', now + hold_ms), key)
  if type(added) == 'number' then
    redis.call('PEXPIRE', held, hold_ms + UNDISPATCHED_MS)
  end
end
