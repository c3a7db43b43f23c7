#!lua flags=allow-oom
-- done: acknowledge a completed job and store its result.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       events       stream  {chasqui:<queue>}:events
--       result       string  {chasqui:<queue>}:result:<id>
--       stalls       string  {chasqui:<queue>}:stalls:<id>
-- ARGV  group        consumer group
--       consumer     consumer that ran it
--       entry        stream entry of the job
--       value        the handler's result
--       ttl          seconds to keep it
--       events_cap   length cap of the events stream; 0: write no events
--       ts           current time, in ms
--       id           job id
--       name         job name; '' if none
--       attempt      number of this run
--       duration_us  duration of the run
-- REPLY 1 done, 0 the consumer no longer owns the entry
-- NEEDS ackdel_*, write_event, is_holder

local stream, events, result, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, entry, value, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local events_cap, ts, id, name, attempt, duration_us = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]

if not is_holder(stream, group, consumer, entry) then
  return 0
end
ackdel(stream, group, {entry})
redis.call('DEL', stalls)
-- The job is completed even if there is no memory left for its result.
redis.pcall('SET', result, value, 'EX', ttl)
write_event(events, events_cap, 'completed', id, ts, name, 'attempt', attempt, 'duration_us', duration_us)
return 1
