#!lua flags=allow-oom
-- abort: end a running job as cancelled, because its handler asked for it.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       stalls      string  {chasqui:<queue>}:stalls:<id>
-- ARGV  group       consumer group
--       consumer    consumer that ran it
--       entry       stream entry of the job
--       events_cap  length cap of the events stream; 0: write no events
--       id          job id
--       name        job name; '' if none
--       reason      why; '' if none was given
-- REPLY 1 cancelled, 0 the consumer no longer owns the entry
-- NEEDS ackdel_*, cancelled_event, is_holder

local stream, events, stalls = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, entry = ARGV[1], ARGV[2], ARGV[3]
local events_cap, id, name, reason = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

if not is_holder(stream, group, consumer, entry) then
  return 0
end
ackdel(stream, group, {entry})
redis.call('DEL', stalls)
write_cancelled_event(events, events_cap, id, name, reason)
return 1
