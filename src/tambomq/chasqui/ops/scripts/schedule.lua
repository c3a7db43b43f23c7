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
--       request         id of this request: a repeated request has no effect
-- REPLY 1 scheduled, 0 was scheduled before, 2 scheduled, and members of the page's dialect need
--       conversion; the leader's name if it could not read the member
-- NEEDS dialect, delayed_member, write_event, dedup_window, journal_on, journal_on_queue

local delayed, events, marker, index, window = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stream, lock, scheduler_lock, consumers = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local workers, converted = KEYS[10], KEYS[11]
local dialect, events_cap, ts, id, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local delay_ms, run_at, member, ttl, request = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local holder = dialect == 'page' and is_foreign_lock(lock)
if holder then
  return holder
end
-- A repetition after a lost reply may find that its job has already been promoted, or cancelled.
if is_in_window(window, request) then
  return 1
elseif ttl ~= '0' and redis.call('EXISTS', marker) == 1 then
  return 0
end
local is_mixed
dialect, member, is_mixed = in_dialect(
  dialect, member, delayed, stream, lock, scheduler_lock, consumers, workers, converted)
if journal_is_full() then return JOURNAL_FULL end
-- Before the marker, because it may fail: a marker without a job would block the id.
if redis.call('ZADD', delayed, run_at, member) == 1 then
  stored_delayed(id, name, member, run_at)
  close_journal()
  write_event(events, events_cap, 'delayed', id, ts, name, 'delay_ms', delay_ms)
end
remember(window, request)
note_member(dialect, converted, marker, index, member, ttl)
return is_mixed and 2 or 1
