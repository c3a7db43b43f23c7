-- cancelled_event: write the event `cancelled` of a job that was removed or stopped.
--
-- NEEDS write_event

-- A job without a readable id gets no event. *reason* is optional.
local function write_cancelled_event(events, events_cap, id, name, reason)
  if id == '' then
    return
  end
  local clock = redis.call('TIME')
  local ts = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
  if reason and reason ~= '' then
    write_event(events, events_cap, 'cancelled', id, ts, name, 'reason', reason)
  else
    write_event(events, events_cap, 'cancelled', id, ts, name)
  end
end
