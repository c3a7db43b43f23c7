-- drop_spec: remove a repeatable spec that cannot be decoded, and store it as a dead letter.
--
-- KEYS  repeat_     zset    {chasqui:<queue>}:repeat
--       spec        hash    {chasqui:<queue>}:repeat:spec:<key>
--       dlq         stream  {chasqui:<queue>}:dlq
--       events      stream  {chasqui:<queue>}:events
-- ARGV  key         key of the spec
--       body        the spec as it was read; a changed spec is kept
--       dlq_cap     length cap of the dead-letter stream
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
--       detail      description of the fault
-- REPLY 1 removed, 0 it has changed
-- NEEDS write_event, stream_cap

local repeat_, spec, dlq, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key, body, dlq_cap, events_cap, ts, detail = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if (redis.call('HGET', spec, 'spec') or '') ~= body then
  return 0
end
if redis.call('ZREM', repeat_, key) == 1 and body ~= '' then
  redis.call('XADD', dlq, '*', 'd', body, 'source_id', key, 'reason', 'malformed', 'detail', detail)
  write_event(events, events_cap, 'dlq', '', ts, '', 'attempt', '0', 'reason', 'malformed')
  trim(dlq, dlq_cap, events, events_cap, ts, 'dlq')
end
redis.call('DEL', spec)
return 1
