-- schedule: add a delayed job.
--
-- KEYS  delayed         zset    {chasqui:<queue>}:delayed
--       events          stream  {chasqui:<queue>}:events
--       marker          string  {chasqui:<queue>}:dlid:<id>
--       index           string  {chasqui:<queue>}:didx:<id>
--       window          zset    {chasqui:<queue>}:idmp:<producer>
--       stream          stream  {chasqui:<queue>}:stream
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       converted       string  {chasqui:<queue>}:tambo:converted
-- ARGV  dialect         'page', 'engine', or 'auto': chosen by whether an engine shares the queue
--       events_cap      length cap of the events stream; 0: write no events
--       ts              current time, in ms
--       id              job id
--       name            job name; '' if none
--       delay_ms        from now
--       run_at          when it is due, in ms
--       member          its name and envelope: in the page's dialect, or else in the engine's
--       ttl             seconds during which the id cannot be scheduled again; 0: no limit
-- REPLY 1 scheduled, 0 was scheduled before, 2 scheduled, and members of the page's dialect need
--       conversion; the leader's name if it could not read the member
-- NEEDS dialect, write_event, dedup_window, journal_on, journal_on_queue

local delayed, events, marker, index, window = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stream, lock, scheduler_lock, consumers = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local workers, converted = KEYS[10], KEYS[11]
local dialect, events_cap, ts, id, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local delay_ms, run_at, member, ttl = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local holder = dialect == 'page' and is_foreign_lock(lock)
if holder then
  return holder
end
-- A repeated call may find that its job has already been promoted.
if ttl ~= '0' and redis.call('EXISTS', marker) == 1 or ttl == '0' and is_in_window(window, id) then
  local stored = redis.call('GET', index)
  return (stored == member or dialect == 'auto' and stored == shortened(member)) and 1 or 0
end
local reply = 1
if dialect == 'auto' then
  if not has_engine(stream, lock, scheduler_lock, consumers, workers, delayed) then
    dialect, member = 'page', shortened(member)
  elseif redis.call('GET', converted) ~= '1' then
    reply = 2
  end
end
if journal_is_full() then return JOURNAL_FULL end
-- Before the marker, because it may fail: a marker without a job would block the id.
if redis.call('ZADD', delayed, run_at, member) == 1 then
  stored_delayed(id, name, member, run_at)
  close_journal()
  write_event(events, events_cap, 'delayed', id, ts, name, 'delay_ms', delay_ms)
end
if dialect == 'page' then
  redis.call('DEL', converted)
end
if ttl == '0' then
  remember(window, id)
else
  redis.call('SET', marker, '1', 'EX', ttl)
  redis.call('SET', index, member, 'EX', ttl)
end
return reply
