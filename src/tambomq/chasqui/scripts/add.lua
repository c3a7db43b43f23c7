-- add: let jobs wait for a worker, all of them or none.
--
-- KEYS  stream             stream  {chasqui:<queue>}:stream
--       events             stream  {chasqui:<queue>}:events
--       window             zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  producer           within which each id counts once; '' if they are all fresh
--       batch              the name of this batch, so that it is added once; '' for none
--       cap                jobs that the stream may hold
--       overflow           'refuse' what is beyond it, or 'trim' the oldest
--       events_cap         events that are kept; 0 writes none
--       ts                 now, in ms
--       id, payload, name  …       a job; name '' for none
-- REPLY how many were new; -1 if there is no room

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local producer, batch, cap, overflow, events_cap, ts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if batch ~= '' and seen(window, batch) then
  return 0
end
if overflow == 'refuse' and room(stream, cap) < (#ARGV - 6) / 3 then
  return -1
end
local added = 0
for i = 7, #ARGV, 3 do
  local id, payload, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local new
  if name == '' then
    new = put(stream, window, producer, id, 'd', payload)
  else
    new = put(stream, window, producer, id, 'd', payload, 'n', name)
  end
  if new then
    added = added + 1
    note(events, events_cap, 'waiting', id, ts, name)
  end
end
if batch ~= '' then
  remember(window, batch)
end
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return added
