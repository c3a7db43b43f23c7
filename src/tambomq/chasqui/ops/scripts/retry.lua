#!lua flags=allow-oom
-- retry: let a job that failed wait for its next run.
--
-- KEYS  stream          stream  {chasqui:<queue>}:stream
--       delayed         zset    {chasqui:<queue>}:delayed
--       events          stream  {chasqui:<queue>}:events
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       converted       string  {chasqui:<queue>}:tambo:converted
-- ARGV  group        whose
--       consumer     who ran it
--       entry        the job's
--       dialect      'page', 'engine', or 'auto': what the queue's signs ask for
--       member       its name and envelope: in the page's dialect, or else in the engine's
--       events_cap   events that are kept; 0 writes none
--       ts           now, in ms
--       id           the job's
--       name         its name, '' for none
--       attempt      which run failed
--       reason       why
--       duration_us  how long it took
--       backoff_ms   how long it waits
-- REPLY 1 waits, 0 is another's by now, or gone; the leader's name if it could not read the member

local stream, delayed, events, lock, scheduler_lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local consumers, workers, converted = KEYS[6], KEYS[7], KEYS[8]
local group, consumer, entry, dialect, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local events_cap, ts, id, name, attempt = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local reason, duration_us, backoff_ms = ARGV[11], ARGV[12], ARGV[13]

if not owns(stream, group, consumer, entry) then
  return 0
end
local holder = dialect == 'page' and is_foreign_lock(lock)
if holder then
  return holder
elseif dialect == 'auto' and not has_signs(stream, lock, scheduler_lock, consumers, workers, delayed) then
  dialect, member = 'page', shortened(member)
end
-- By the clock that lets it go: one of a worker that is wrong must not keep a job for years.
local time = redis.call('TIME')
local run_at = time[1] * 1000 + math.floor(time[2] / 1000) + backoff_ms
redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
if dialect == 'page' then
  redis.call('DEL', converted)
end
ackdel(stream, group, {entry})
note(events, events_cap, 'failed', id, ts, name, 'attempt', attempt, 'reason', reason, 'duration_us', duration_us)
note(events, events_cap, 'retry-scheduled', id, ts, name, 'attempt', attempt + 1, 'backoff_ms', backoff_ms)
return 1
