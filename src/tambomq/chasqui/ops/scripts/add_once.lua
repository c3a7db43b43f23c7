-- add_once: add a job to the stream, unless any producer has added its id before.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       added       string  {chasqui:<queue>}:added:<id>, or :tambo:throttle:<id>
-- ARGV  ttl         milliseconds to remember the id
--       cap         length cap of the stream
--       overflow    at the cap: 'refuse' new jobs, or 'trim' the oldest
--       events_cap  length cap of the events stream; 0: write no events
--       announce    length cap of the events stream if `waiting` is to be written; else 0
--       ts          current time, in ms
--       id          job id
--       payload     its envelope
--       name        job name; '' if none
--       request     id of this request: a repetition after a lost reply recognises its own job
-- REPLY length of the stream, n; -1 if the stream is full; -2 - n if the id is a duplicate
-- NEEDS write_event, stream_cap, journal_on, journal_on_queue

local stream, events, added = KEYS[1], KEYS[2], KEYS[3]
local ttl, cap, overflow, events_cap, announce = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ts, id, payload, name, request = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local before = redis.call('GET', added)
if before then
  local length = redis.call('XLEN', stream)
  return before == request and length or -2 - length
end
if overflow == 'refuse' and free_slots(stream, cap) < 1 then
  return -1
end
if journal_is_full() then return JOURNAL_FULL end
if name == '' then
  redis.call('XADD', stream, '*', 'd', payload)
else
  redis.call('XADD', stream, '*', 'd', payload, 'n', name)
end
stored(id, name, payload)
close_journal()
redis.call('SET', added, request, 'PX', ttl)
write_event(events, announce, 'waiting', id, ts, name)
if overflow == 'trim' then
  trim(stream, cap, events, events_cap, ts, 'stream')
end
return redis.call('XLEN', stream)
