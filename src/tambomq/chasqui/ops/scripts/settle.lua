-- settle: write events of started jobs, and acknowledge completed jobs.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       stalls      string  {chasqui:<queue>}:stalls:<id>, without the id
-- ARGV  group       consumer group
--       consumer    consumer that runs them
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
--       begun       how many begin
--       rest        …  id, name and attempt of each that begins, then entry, id, name, attempt and
--                   duration_us of each that ended
-- REPLY entries that ended but were no longer owned
-- NEEDS ackdel_*, is_holder

local stream, events, stalls = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, events_cap, ts, begun = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- A specialised `write_event`: nine tenths of all events are written here.
local function write_event(e, id, name, ...)
  if events_cap == '0' then
    return
  elseif name == '' then
    redis.pcall('XADD', events, '*', 'e', e, 'id', id, 'ts', ts, 'attempt', ...)
  else
    redis.pcall('XADD', events, '*', 'e', e, 'id', id, 'ts', ts, 'n', name, 'attempt', ...)
  end
end

local ended = 6 + begun * 3
for i = 6, ended - 1, 3 do
  write_event('active', ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
-- Jobs end roughly in stream order, so one XPENDING finds nearly all.
local known = {}
if ended < #ARGV then
  local rows = redis.pcall('XPENDING', stream, group, ARGV[ended], ARGV[#ARGV - 4], #ARGV, consumer)
  for _, row in ipairs(rows) do
    known[row[1]] = true
  end
end
local mine, lost, counters = {}, {}, {}
for i = ended, #ARGV, 5 do
  local entry = ARGV[i]
  if known[entry] or is_holder(stream, group, consumer, entry) then
    mine[#mine + 1] = entry
    counters[#counters + 1] = stalls .. ARGV[i + 1]
    write_event('completed', ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], 'duration_us', ARGV[i + 4])
  else
    lost[#lost + 1] = entry
  end
end
if events_cap ~= '0' then
  redis.pcall('XTRIM', events, 'MAXLEN', '~', events_cap)
end
if #mine > 0 then
  ackdel(stream, group, mine)
  redis.call('DEL', unpack(counters))
end
return lost
