-- add_batch: let jobs of fresh ids wait for a worker, all of them or none, and once.
--
-- KEYS  stream             stream  {chasqui:<queue>}:stream
--       events             stream  {chasqui:<queue>}:events
--       window             zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  batch              its name, unlike that of any other
--       cap                jobs that the stream may hold
--       overflow           'refuse' what is beyond it, or 'trim' the oldest
--       events_cap         events that are kept; 0 writes none
--       announce           events that are kept if these adds are to be some; else 0
--       ts                 now, in ms
--       id, payload, name  …       a job; name '' for none
-- REPLY how many the stream holds; -1 if there is no room

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local batch, cap, overflow, events_cap, announce, ts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if seen(window, batch) then
  return redis.call('XLEN', stream)
end
if overflow == 'refuse' and room(stream, cap) < (#ARGV - 6) / 3 then
  return -1
end
for i = 7, #ARGV, 3 do
  local payload, name = ARGV[i + 1], ARGV[i + 2]
  if name == '' then
    redis.call('XADD', stream, '*', 'd', payload)
  else
    redis.call('XADD', stream, '*', 'd', payload, 'n', name)
  end
  note(events, announce, 'waiting', ARGV[i], ts, name)
end
remember(window, batch)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
