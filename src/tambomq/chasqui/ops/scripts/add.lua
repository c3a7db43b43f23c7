-- add: add a job to the stream.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       window      zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  producer    deduplication scope of the id
--       cap         length cap of the stream
--       overflow    at the cap: 'refuse' new jobs, or 'trim' the oldest
--       events_cap  length cap of the events stream; 0: write no events
--       announce    length cap of the events stream if `waiting` is to be written; else 0
--       ts          current time, in ms
--       id          job id
--       payload     its envelope
--       name        job name; '' if none
-- REPLY length of the stream, n; -1 if the stream is full; -2 - n if the id is a duplicate
-- NEEDS write_event, put_*, stream_cap, journal_on, journal_on_queue

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
if journal_is_full() then return JOURNAL_FULL end
local entry
if name == '' then
  entry = put(stream, window, producer, id, near, 'd', payload)
else
  entry = put(stream, window, producer, id, near, 'd', payload, 'n', name)
end
local after = redis.call('XLEN', stream)
if after == before then
  -- The id is a duplicate: of another job, or of this very call if its first reply was lost.
  local row = redis.call('XRANGE', stream, entry, entry)[1]
  return row and row[2][2] == payload and after or -2 - after
end
stored(id, name, payload)
close_journal()
write_event(events, announce, 'waiting', id, ts, name)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return after
