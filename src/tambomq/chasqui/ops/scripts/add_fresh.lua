-- add_fresh: add jobs with generated ids to the stream, all or none; a repeated batch has no effect.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       window      zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  batch       unique id of the batch
--       cap         length cap of the stream
--       overflow    at the cap: 'refuse' new jobs, or 'trim' the oldest
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
--       step        1 if all jobs have the same name, 2 if each is followed by its own
--       name        name of all jobs; '' if none
--       rest        …       the envelopes, or envelopes and names in turn
-- REPLY length of the stream; -1 if the stream is full
-- NEEDS stream_cap, dedup_window, journal_on, journal_on_queue

local stream, events, window = KEYS[1], KEYS[2], KEYS[3]
local batch, cap, overflow, events_cap, ts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local step, name = tonumber(ARGV[6]), ARGV[7]

if is_in_window(window, batch) then
  return redis.call('XLEN', stream)
end
if overflow == 'refuse' and free_slots(stream, cap) < (#ARGV - 7) / step then
  return -1
end
if journal_is_full() then return JOURNAL_FULL end
for i = 8, #ARGV, step do
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
remember(window, batch)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
