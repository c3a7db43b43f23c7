#!lua
-- sink_fresh: add the jobs of a chunk, all or none, exactly once; their ids are generated.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       fence       hash    {chasqui:<queue>}:fence:<query>
-- ARGV  batch       number of the chunk's batch; below the fence's floor nothing is written
--       token       id of the chunk
--       digest      digest of the chunk's content
--       keep_s      TTL of the fence, in seconds
--       cap         length cap of the stream
--       overflow    at the cap: 'refuse' new jobs, or 'trim' the oldest
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
--       step        1 if all jobs have the same name, 2 if each is followed by its own
--       name        name of all jobs; '' if none
--       rest        …       the envelopes, or envelopes and names in turn
-- REPLY 1 added, 0 was added before, -1 the token was used for another chunk,
--       -2 its batch is below the floor, -3 the stream is full
-- NEEDS fence, stream_cap, journal_on, journal_on_queue

local stream, events, fence = KEYS[1], KEYS[2], KEYS[3]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local cap, overflow, events_cap, ts = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local step, name = tonumber(ARGV[9]), ARGV[10]

local refused = refused_by_fence(fence, batch, token, digest)
if refused then
  return refused
end
if free_slots(stream, cap) < (#ARGV - 10) / step and overflow == 'refuse' then
  return -3
end
if journal_is_full() then return JOURNAL_FULL end
for i = 11, #ARGV, step do
  if step == 2 then
    name = ARGV[i + 1]
  end
  if name == '' then
    redis.call('XADD', stream, '*', 'd', ARGV[i])
  else
    redis.call('XADD', stream, '*', 'd', ARGV[i], 'n', name)
  end
  stored(nil, name, ARGV[i])
end
close_journal()
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
remember_chunk(fence, token, digest, keep_s)
return 1
