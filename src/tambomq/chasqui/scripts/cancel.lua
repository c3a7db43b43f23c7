-- cancel: forget a job that was scheduled under its id and is not due yet.
--
-- KEYS  delayed     zset    {chasqui:<queue>}:delayed
--       marker      string  {chasqui:<queue>}:dlid:<id>
--       index       string  {chasqui:<queue>}:didx:<id>
--       events      stream  {chasqui:<queue>}:events
-- ARGV  events_cap  events that are kept; 0 writes none
--       id          the job's
-- REPLY 1 cancelled, 0 is not there

local delayed, marker, index, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local events_cap, id = ARGV[1], ARGV[2]

local member = redis.call('GET', index)
if not member or redis.call('ZREM', delayed, member) == 0 then
  return 0
end
redis.call('DEL', index, marker)
local skip, length = prefix(member)
note_cancelled(events, events_cap, id, skip and member:sub(skip + 1, skip + length) or '')
return 1
