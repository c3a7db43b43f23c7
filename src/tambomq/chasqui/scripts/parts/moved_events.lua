-- moved_events: write the event `moved` for jobs that have left for another queue.
--
-- NEEDS write_event

-- *jobs*: ids and names alternate. A job without a readable id gets no event.
local function write_moved_events(events, events_cap, jobs)
  local clock = redis.call('TIME')
  local ts = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
  for i = 1, #jobs, 2 do
    if jobs[i] ~= '' then
      write_event(events, events_cap, 'moved', jobs[i], ts, jobs[i + 1])
    end
  end
end
