-- add_fresh: let jobs of fresh ids wait for a worker, all of them or none, and once.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       window      zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  batch       its name, unlike that of any other
--       cap         jobs that the stream may hold
--       overflow    'refuse' what is beyond it, or 'trim' the oldest
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
--       step        1 if all jobs have the same name, 2 if each is followed by its own
--       name        that of all, '' for none
--       rest        …       the envelopes, or envelopes and names in turn
-- REPLY how many the stream holds; -1 if there is no room

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local batch, cap, overflow, events_cap, ts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local step, name = tonumber(ARGV[6]), ARGV[7]

if seen(window, batch) then
  return redis.call('XLEN', stream)
end
if overflow == 'refuse' and room(stream, cap) < (#ARGV - 7) / step then
  return -1
end
for i = 8, #ARGV, step do
  if step == 2 then
    name = ARGV[i + 1]
  end
  if name == '' then
    redis.call('XADD', stream, '*', 'd', ARGV[i])
  else
    redis.call('XADD', stream, '*', 'd', ARGV[i], 'n', name)
  end
end
remember(window, batch)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
