-- cancelled: for other scripts: tell that somebody has forgotten a job that will now never run.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Of what has no id, nobody knows whom it is about.
local function note_cancelled(events, events_cap, id, name)
  if id ~= '' then
    local clock = redis.call('TIME')
    local ts = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
    note(events, events_cap, 'cancelled', id, ts, name)
  end
end
