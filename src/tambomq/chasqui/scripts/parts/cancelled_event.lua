-- cancelled_event: write the event `cancelled` of a job that was removed before it ran.
--
-- NEEDS write_event

-- A job without a readable id gets no event.
local function write_cancelled_event(events, events_cap, id, name)
  if id ~= '' then
    local clock = redis.call('TIME')
    local ts = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
    write_event(events, events_cap, 'cancelled', id, ts, name)
  end
end
