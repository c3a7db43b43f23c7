-- schedule: let a job wait until it is due.
--
-- KEYS  delayed     zset    {chasqui:<queue>}:delayed
--       lock        string  {chasqui:<queue>}:promoter:lock
--       events      stream  {chasqui:<queue>}:events
--       marker      string  {chasqui:<queue>}:dlid:<id>
--       index       string  {chasqui:<queue>}:didx:<id>
--       window      zset    {chasqui:<queue>}:idmp:<producer>
-- ARGV  ours        how the names of leaders begin that read any member; '' if all read this one
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
--       id          the job's
--       name        its name, '' for none
--       delay_ms    from now
--       run_at      when it is due, in ms
--       member      its name and envelope
--       ttl         seconds during which no other job of this id is scheduled; 0 if any may be
-- REPLY 1 scheduled, 0 was scheduled before; the leader's name if it could not read the member

local delayed, lock, events, marker, index, window = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ours, events_cap, ts, id, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local delay_ms, run_at, member, ttl = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local holder = ours ~= '' and redis.call('GET', lock)
if holder and holder:sub(1, #ours) ~= ours then
  return holder
end
-- A call that is repeated finds no job when it was promoted in between.
if ttl ~= '0' and redis.call('EXISTS', marker) == 1 or ttl == '0' and seen(window, id) then
  return 0
end
-- First, because it may fail: a marker without a job would keep the job away.
if redis.call('ZADD', delayed, run_at, member) == 1 then
  note(events, events_cap, 'delayed', id, ts, name, 'delay_ms', delay_ms)
end
if ttl == '0' then
  remember(window, id)
else
  redis.call('SET', marker, '1', 'EX', ttl)
  redis.call('SET', index, member, 'EX', ttl)
end
return 1
