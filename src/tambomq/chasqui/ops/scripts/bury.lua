#!lua flags=allow-oom
-- bury: move a job to the dead-letter queue.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       dlq          stream  {chasqui:<queue>}:dlq
--       events       stream  {chasqui:<queue>}:events
--       stalls       string  {chasqui:<queue>}:stalls:<id>
-- ARGV  group        consumer group
--       consumer     consumer that owns it
--       entry        stream entry of the job
--       dlq_cap      length cap of the dead-letter stream
--       reason       reason of the dead letter
--       payload      its envelope, or the bytes found in its place
--       name         job name; '' if none
--       detail       details of the reason; '' if none
--       events_cap   length cap of the events stream; 0: write no events
--       ts           current time, in ms
--       id           job id; '' if unknown
--       attempt      number of runs so far
--       duration_us  duration of the last run; '' if it did not run
--       error_type   type of the last run's exception; '' if it did not run
--       traceback    of that exception
-- REPLY 1 buried, 0 the consumer no longer owns the entry
-- NEEDS ackdel_*, write_event, is_holder, stream_cap

local stream, dlq, events, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, entry, dlq_cap, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local payload, name, detail = ARGV[6], ARGV[7], ARGV[8]
local events_cap, ts, id, attempt, duration_us = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local error_type, traceback = ARGV[14], ARGV[15]

if not is_holder(stream, group, consumer, entry) then
  return 0
end
local row = {'d', payload}
if name ~= '' then
  row[3], row[4] = 'n', name
end
local more = {'source_id', entry, 'reason', reason, 'detail', detail, 'error_type', error_type, 'traceback', traceback}
for i = 1, #more, 2 do
  -- Only the first two of these fields are written even if they are empty.
  if i <= 3 or more[i + 1] ~= '' then
    row[#row + 1] = more[i]
    row[#row + 1] = more[i + 1]
  end
end
redis.call('XADD', dlq, '*', unpack(row))
ackdel(stream, group, {entry})
redis.call('DEL', stalls)
if duration_us ~= '' then
  write_event(events, events_cap, 'failed', id, ts, name, 'attempt', attempt, 'reason', detail, 'duration_us', duration_us)
end
write_event(events, events_cap, 'dlq', id, ts, name, 'attempt', attempt, 'reason', reason)
trim(dlq, dlq_cap, events, events_cap, ts, 'dlq')
return 1
