-- resign: release the leader lock.
--
-- KEYS  lock    string  {chasqui:<queue>}:promoter:lock or …:scheduler:lock
-- ARGV  holder  id of the caller
-- REPLY 1 resigned, 0 did not lead

local lock = KEYS[1]
local holder = ARGV[1]

if redis.call('GET', lock) ~= holder then
  return 0
end
return redis.call('DEL', lock)
