-- resign: lead no more.
--
-- KEYS  lock    string  {chasqui:<queue>}:promoter:lock or …:scheduler:lock
-- ARGV  holder  who
-- REPLY 1 resigned, 0 did not lead

local lock = KEYS[1]
local holder = ARGV[1]

if redis.call('GET', lock) ~= holder then
  return 0
end
return redis.call('DEL', lock)
