-- add_batch: let jobs wait for a worker, all of them or none, and each id once.
--
-- KEYS  stream             stream  {chasqui:<queue>}:stream
--       events             stream  {chasqui:<queue>}:events
--       window             zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  batch              its name, unlike that of any other
--       producer           within which each id counts once
--       cap                jobs that the stream may hold
--       overflow           'refuse' what is beyond it, or 'trim' the oldest
--       events_cap         events that are kept; 0 writes none
--       announce           events that are kept if these adds are to be some; else 0
--       ts                 now, in ms
--       id, payload, name  …       a job; name '' for none
-- REPLY how many the stream holds; -1 if there is no room

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local batch, producer, cap, overflow = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local events_cap, announce, ts = ARGV[5], ARGV[6], ARGV[7]

if seen(window, batch) then
  return redis.call('XLEN', stream)
end
if overflow == 'refuse' and room(stream, cap) < (#ARGV - 7) / 3 then
  return -1
end
for i = 8, #ARGV, 3 do
  local id, payload, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if not is_known(window, id, true) then
    local before = redis.call('XLEN', stream)
    if name == '' then
      put(stream, window, producer, id, true, 'd', payload)
    else
      put(stream, window, producer, id, true, 'd', payload, 'n', name)
    end
    if redis.call('XLEN', stream) > before then
      note(events, announce, 'waiting', id, ts, name)
    end
  end
end
remember(window, batch)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
