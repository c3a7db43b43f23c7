-- cancel: delete a delayed job that was scheduled under a caller's id.
--
-- KEYS  delayed     zset    {chasqui:<queue>}:delayed
--       marker      string  {chasqui:<queue>}:dlid:<id>
--       index       string  {chasqui:<queue>}:didx:<id>
--       events      stream  {chasqui:<queue>}:events
--       window      zset    {chasqui:<queue>}:idmp:requests
-- ARGV  events_cap  length cap of the events stream; 0: write no events
--       id          job id
--       request     id of this request: a repeated request has no effect
-- REPLY 1 cancelled, 0 not found
-- NEEDS cancelled_event, prefix, dedup_window

local delayed, marker, index, events, window = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local events_cap, id, request = ARGV[1], ARGV[2], ARGV[3]

-- A repetition after a lost reply must not cancel a job that was scheduled since under the same id.
if is_in_window(window, request) then
  return 1
end
local member = redis.call('GET', index)
if not member or redis.call('ZREM', delayed, member) == 0 then
  return 0
end
redis.call('DEL', index, marker)
remember(window, request)
local skip, length = prefix(member)
write_cancelled_event(events, events_cap, id, skip and member:sub(skip + 1, skip + length) or '')
return 1
