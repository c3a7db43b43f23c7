-- begin: tell the events stream that jobs begin to run.
--
-- KEYS  events             stream  {chasqui:<queue>}:events
-- ARGV  events_cap         events that are kept
--       ts                 now, in ms
--       id, name, attempt  …       a job, its name or '', which run this is
-- REPLY how many

local events = KEYS[1]
local events_cap, ts = ARGV[1], ARGV[2]

for i = 3, #ARGV, 3 do
  note(events, events_cap, 'active', ARGV[i], ts, ARGV[i + 1], 'attempt', ARGV[i + 2])
end
return (#ARGV - 2) / 3
