-- drop_entry: delete a waiting job, unless a worker owns it.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
-- ARGV  entry       stream entry of the job
--       returned    consumer that owns returned entries
--       events_cap  length cap of the events stream; 0: write no events
--       id          job id
--       name        job name; '' if none
-- REPLY 1 deleted, 0 not found; the worker's name if one owns it
-- NEEDS cancelled_event

local stream, events = KEYS[1], KEYS[2]
local entry, returned, events_cap, id, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if #redis.call('XRANGE', stream, entry, entry) == 0 then
  return 0
end
local given_back = {}
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local row = redis.call('XPENDING', stream, group[2], entry, entry, 1)[1]
  if row and row[2] ~= returned then
    return row[2]
  elseif row then
    given_back[#given_back + 1] = group[2]
  end
end
for _, group in ipairs(given_back) do
  redis.call('XACK', stream, group, entry)
end
redis.call('XDEL', stream, entry)
write_cancelled_event(events, events_cap, id, name)
return 1
