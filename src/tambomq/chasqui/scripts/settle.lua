-- settle: forget jobs whose handlers returned.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
-- ARGV  group       whose
--       consumer    who ran them
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
--       entry, id, name, attempt, duration_us  …  a job, which run this was, how long it took
-- REPLY entries that were another's by then, or gone

local stream, events = KEYS[1], KEYS[2]
local group, consumer, events_cap, ts = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local mine, lost = {}, {}
for i = 5, #ARGV, 5 do
  local entry = ARGV[i]
  if owns(stream, group, consumer, entry) then
    mine[#mine + 1] = entry
    note(events, events_cap, 'completed', ARGV[i + 1], ts, ARGV[i + 2], 'attempt', ARGV[i + 3], 'duration_us', ARGV[i + 4])
  else
    lost[#lost + 1] = entry
  end
end
if #mine > 0 then
  ackdel(stream, group, mine)
end
return lost
