-- add: let a job wait for a worker.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       window      zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  producer    within which the id counts once
--       cap         jobs that the stream may hold
--       overflow    'refuse' what is beyond it, or 'trim' the oldest
--       events_cap  events that are kept; 0 writes none
--       announce    events that are kept if this add is to be one; else 0
--       ts          now, in ms
--       id          the job's
--       payload     its envelope
--       name        its name, '' for none
-- REPLY how many the stream holds, n; -1 if there is no room; -2 - n if the id counts already

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local producer, cap, overflow, events_cap, announce = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ts, id, payload, name = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local before = redis.call('XLEN', stream)
local near = overflow == 'refuse' and before + 1000 > tonumber(cap)
if is_known(window, id, near) then
  return -2 - before
end
if near and before >= tonumber(cap) then
  return -1
end
local entry
if name == '' then
  entry = put(stream, window, producer, id, near, 'd', payload)
else
  entry = put(stream, window, producer, id, near, 'd', payload, 'n', name)
end
local after = redis.call('XLEN', stream)
if after == before then
  -- Its id counts already: because of another job, or of this very call when its reply was lost.
  local row = redis.call('XRANGE', stream, entry, entry)[1]
  return row and row[2][2] == payload and after or -2 - after
end
note(events, announce, 'waiting', id, ts, name)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return after
