-- cancel: forget a job that was scheduled under its id and is not due yet.
--
-- KEYS  delayed  zset    {chasqui:<queue>}:delayed
--       marker   string  {chasqui:<queue>}:dlid:<id>
--       index    string  {chasqui:<queue>}:didx:<id>
-- ARGV  none
-- REPLY 1 cancelled, 0 is not there

local delayed, marker, index = KEYS[1], KEYS[2], KEYS[3]

local member = redis.call('GET', index)
if not member or redis.call('ZREM', delayed, member) == 0 then
  return 0
end
redis.call('DEL', index, marker)
return 1
