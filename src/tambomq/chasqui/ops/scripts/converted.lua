-- converted: remember that no delayed job of the page's dialect is left.
--
-- KEYS  converted  string  {chasqui:<queue>}:tambo:converted
-- ARGV  walk       what was kept there when the search began; who stores such a job deletes it
--       keep_s     for how long to remember it
-- REPLY 1, or 0 if such a job was stored meanwhile

local converted = KEYS[1]
local walk, keep_s = ARGV[1], ARGV[2]

if redis.call('GET', converted) ~= walk then
  return 0
end
redis.call('SET', converted, '1', 'EX', keep_s)
return 1
