-- moved: for other scripts: tell which jobs have left for another queue.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Of jobs' ids and names, by turns. Of what has no id, nobody knows whom it is about.
local function note_moved(events, events_cap, jobs)
  local clock = redis.call('TIME')
  local ts = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
  for i = 1, #jobs, 2 do
    if jobs[i] ~= '' then
      note(events, events_cap, 'moved', jobs[i], ts, jobs[i + 1])
    end
  end
end
