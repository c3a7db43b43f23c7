#!lua flags=allow-oom
-- bury: move a job to the dead-letter queue.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       dlq          stream  {chasqui:<queue>}:dlq
--       events       stream  {chasqui:<queue>}:events
--       stalls       string  {chasqui:<queue>}:stalls:<id>
-- ARGV  group        whose
--       consumer     who has it
--       entry        the job's
--       dlq_cap      dead letters that are kept
--       reason       why it is dead
--       payload      its envelope, or what was there instead
--       name         its name, '' for none
--       detail       more about why, '' for nothing
--       events_cap   events that are kept; 0 writes none
--       ts           now, in ms
--       id           the job's, '' where it is not known
--       attempt      runs it has had
--       duration_us  how long the last took; '' if it did not run
--       error_type   of what the last raised; '' if it did not run
--       traceback    of the same
-- REPLY 1 buried, 0 is another's by now, or gone

local stream, dlq, events, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, entry, dlq_cap, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local payload, name, detail = ARGV[6], ARGV[7], ARGV[8]
local events_cap, ts, id, attempt, duration_us = ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local error_type, traceback = ARGV[14], ARGV[15]

if not owns(stream, group, consumer, entry) then
  return 0
end
local row = {'d', payload}
if name ~= '' then
  row[3], row[4] = 'n', name
end
local more = {'source_id', entry, 'reason', reason, 'detail', detail, 'error_type', error_type, 'traceback', traceback}
for i = 1, #more, 2 do
  -- Of these only the first two are there even if they are empty.
  if i <= 3 or more[i + 1] ~= '' then
    row[#row + 1] = more[i]
    row[#row + 1] = more[i + 1]
  end
end
redis.call('XADD', dlq, '*', unpack(row))
ackdel(stream, group, {entry})
redis.call('DEL', stalls)
if duration_us ~= '' then
  note(events, events_cap, 'failed', id, ts, name, 'attempt', attempt, 'reason', detail, 'duration_us', duration_us)
end
note(events, events_cap, 'dlq', id, ts, name, 'attempt', attempt, 'reason', reason)
trim(dlq, dlq_cap, events, events_cap, ts, 'dlq')
return 1
