#!lua
-- sink_fresh: let the jobs of a chunk wait for a worker, all of them and once; their ids are fresh.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       fence       hash    {chasqui:<queue>}:fence:<query>
-- ARGV  batch       the chunk's; nothing is written for one that is below the fence's floor
--       token       names the chunk
--       digest      of what is in it
--       keep_s      for how long the fence is kept
--       cap         jobs that the stream may hold
--       overflow    'refuse' what is beyond it, or 'trim' the oldest
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
--       step        1 if all jobs have the same name, 2 if each is followed by its own
--       name        that of all, '' for none
--       rest        …       the envelopes, or envelopes and names in turn
-- REPLY 1 added, 0 was added before, -1 another chunk was under this token, -2 its batch is over,
--       -3 there is no room

local stream, events, fence = KEYS[1], KEYS[2], KEYS[3]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local cap, overflow, events_cap, ts = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local step, name = tonumber(ARGV[9]), ARGV[10]

local known = redis.call('HMGET', fence, token, 'floor')
if known[1] then
  return known[1] == digest and 0 or -1
elseif known[2] and tonumber(batch) < tonumber(known[2]) then
  return -2
end
if room(stream, cap) < (#ARGV - 10) / step and overflow == 'refuse' then
  return -3
end
for i = 11, #ARGV, step do
  if step == 2 then
    name = ARGV[i + 1]
  end
  if name == '' then
    redis.call('XADD', stream, '*', 'd', ARGV[i])
  else
    redis.call('XADD', stream, '*', 'd', ARGV[i], 'n', name)
  end
end
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
redis.call('HSET', fence, token, digest)
redis.call('EXPIRE', fence, keep_s)
return 1
