-- stream_cap: keep a stream within its length cap.
--
-- NEEDS write_event

-- Return how many entries can be added before the cap is reached.
local function free_slots(stream, cap)
  return math.max(0, tonumber(cap) - redis.call('XLEN', stream))
end

-- Trim the oldest entries beyond the cap, and write an event `trimmed`.
local function trim(stream, cap, events, events_cap, ts, which)
  local count = redis.call('XTRIM', stream, 'MAXLEN', '~', cap)
  if count > 0 then
    write_event(events, events_cap, 'trimmed', '', ts, '', 'count', count, 'reason', which)
  end
end
