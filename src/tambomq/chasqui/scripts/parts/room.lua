-- room: for other scripts: keep a stream within its cap.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- How many entries still fit.
local function room(stream, cap)
  return math.max(0, tonumber(cap) - redis.call('XLEN', stream))
end

-- Forget the oldest beyond the cap, and say so.
local function trim(stream, cap, events, events_cap, ts, which)
  local count = redis.call('XTRIM', stream, 'MAXLEN', '~', cap)
  if count > 0 then
    note(events, events_cap, 'trimmed', '', ts, '', 'count', count, 'reason', which)
  end
end
