-- drop_spec: take a repeatable spec out that cannot be read, and keep it as a dead letter.
--
-- KEYS  repeat_     zset    {chasqui:<queue>}:repeat
--       spec        hash    {chasqui:<queue>}:repeat:spec:<key>
--       dlq         stream  {chasqui:<queue>}:dlq
--       events      stream  {chasqui:<queue>}:events
-- ARGV  key         the spec's
--       body        what was read; the spec stays if it is another by now
--       dlq_cap     dead letters that are kept
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
--       detail      what is wrong with it
-- REPLY 1 taken out, 0 it has changed

local repeat_, spec, dlq, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key, body, dlq_cap, events_cap, ts, detail = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if (redis.call('HGET', spec, 'spec') or '') ~= body then
  return 0
end
if redis.call('ZREM', repeat_, key) == 1 and body ~= '' then
  redis.call('XADD', dlq, '*', 'd', body, 'source_id', key, 'reason', 'malformed', 'detail', detail)
  note(events, events_cap, 'dlq', '', ts, '', 'attempt', '0', 'reason', 'malformed')
  trim(dlq, dlq_cap, events, events_cap, ts, 'dlq')
end
redis.call('DEL', spec)
return 1
