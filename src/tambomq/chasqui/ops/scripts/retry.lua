#!lua flags=allow-oom
-- retry: move a failed job to the delayed set for its next attempt.
--
-- KEYS  stream          stream  {chasqui:<queue>}:stream
--       delayed         zset    {chasqui:<queue>}:delayed
--       events          stream  {chasqui:<queue>}:events
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       converted       string  {chasqui:<queue>}:tambo:converted
--       previous        hash    {chasqui:<queue>}:tambo:previous
-- ARGV  group           consumer group
--       consumer        consumer that ran it
--       entry           stream entry of the job
--       dialect         'page', 'engine', or 'auto': chosen by whether an engine shares the queue
--       member          its name and envelope: in the page's dialect, or else in the engine's
--       events_cap      length cap of the events stream; 0: write no events
--       ts              current time, in ms
--       id              job id
--       name            job name; '' if none
--       attempt         number of the failed run
--       reason          why
--       duration_us     duration of the run
--       backoff_ms      backoff, in ms
-- REPLY 1 delayed, 0 the consumer no longer owns the entry; the leader's name if it could not read the member
-- NEEDS ackdel_*, dialect, write_event, is_holder

local stream, delayed, events, lock, scheduler_lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local consumers, workers, converted, previous = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local group, consumer, entry, dialect, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local events_cap, ts, id, name, attempt = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local reason, duration_us, backoff_ms = ARGV[11], ARGV[12], ARGV[13]

local foreign = dialect == 'page' and is_foreign_lock(lock)
if not is_holder(stream, group, consumer, entry, foreign) then
  return 0
elseif foreign then
  return foreign
elseif dialect == 'auto' and not has_engine(stream, lock, scheduler_lock, consumers, workers, delayed) then
  dialect, member = 'page', shortened(member)
end
local is_tracked = redis.pcall('HEXISTS', previous, id) == 1
-- By the server's clock, which also decides when it is due: a worker's wrong clock must not delay
-- a job for years.
local time = redis.call('TIME')
local run_at = time[1] * 1000 + math.floor(time[2] / 1000) + backoff_ms
redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
if dialect == 'page' then
  redis.call('DEL', converted)
end
if is_tracked then
  redis.call('HSET', previous, id, member)
end
ackdel(stream, group, {entry})
write_event(events, events_cap, 'failed', id, ts, name, 'attempt', attempt, 'reason', reason, 'duration_us', duration_us)
write_event(events, events_cap, 'retry-scheduled', id, ts, name, 'attempt', attempt + 1, 'backoff_ms', backoff_ms)
return 1
