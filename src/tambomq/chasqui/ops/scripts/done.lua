#!lua flags=allow-oom
-- done: forget a job whose handler returned a value, and keep the value.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       events       stream  {chasqui:<queue>}:events
--       result       string  {chasqui:<queue>}:result:<id>
--       stalls       string  {chasqui:<queue>}:stalls:<id>
-- ARGV  group        whose
--       consumer     who ran it
--       entry        the job's
--       value        what the handler returned
--       ttl          seconds to keep it
--       events_cap   events that are kept; 0 writes none
--       ts           now, in ms
--       id           the job's
--       name         its name, '' for none
--       attempt      which run this was
--       duration_us  how long it took
-- REPLY 1 done, 0 is another's by now, or gone

local stream, events, result, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, entry, value, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local events_cap, ts, id, name, attempt, duration_us = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]

if not owns(stream, group, consumer, entry) then
  return 0
end
ackdel(stream, group, {entry})
redis.call('DEL', stalls)
-- The job is done, also where there is no memory left for what it returned.
redis.pcall('SET', result, value, 'EX', ttl)
note(events, events_cap, 'completed', id, ts, name, 'attempt', attempt, 'duration_us', duration_us)
return 1
