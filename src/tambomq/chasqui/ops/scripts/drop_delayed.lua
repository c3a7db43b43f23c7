-- drop_delayed: delete delayed jobs; their ids may be scheduled again.
--
-- KEYS  delayed           zset    {chasqui:<queue>}:delayed
--       events            stream  {chasqui:<queue>}:events
--       marker, index     …       {chasqui:<queue>}:dlid:<id> and :didx:<id> of each
-- ARGV  events_cap        length cap of the events stream; 0: write no events
--       member, id, name  …       of each; id '' if the member cannot be decoded
-- REPLY how many were there
-- NEEDS cancelled_event

local delayed, events = KEYS[1], KEYS[2]
local events_cap = ARGV[1]

local dropped = 0
for i = 2, #ARGV, 3 do
  local member, id, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('ZREM', delayed, member) == 1 then
    local place = 3 + (i - 2) / 3 * 2
    redis.call('UNLINK', unpack(KEYS, place, place + 1))
    write_cancelled_event(events, events_cap, id, name)
    dropped = dropped + 1
  end
end
return dropped
