-- cancel: forget a job that was scheduled under its id and is not due yet.
--
-- KEYS  delayed     zset    {chasqui:<queue>}:delayed
--       marker      string  {chasqui:<queue>}:dlid:<id>
--       index       string  {chasqui:<queue>}:didx:<id>
--       events      stream  {chasqui:<queue>}:events
--       window      zset    {chasqui:<queue>}:idmp:requests
-- ARGV  events_cap  events that are kept; 0 writes none
--       id          the job's
--       request     names this request: made twice, it counts once
-- REPLY 1 cancelled, 0 is not there

local delayed, marker, index, events, window = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local events_cap, id, request = ARGV[1], ARGV[2], ARGV[3]

-- Repeated after its reply was lost, it would cancel what another has scheduled since.
if seen(window, request) then
  return 1
end
local member = redis.call('GET', index)
if not member or redis.call('ZREM', delayed, member) == 0 then
  return 0
end
redis.call('DEL', index, marker)
remember(window, request)
local skip, length = prefix(member)
note_cancelled(events, events_cap, id, skip and member:sub(skip + 1, skip + length) or '')
return 1
