-- converted: record that no delayed member in the page's dialect is left.
--
-- KEYS  converted  string  {chasqui:<queue>}:tambo:converted
-- ARGV  walk       the value when the search began; storing such a job deletes it
--       keep_s     for how long to remember it
-- REPLY 1, or 0 if such a job was stored meanwhile

local converted = KEYS[1]
local walk, keep_s = ARGV[1], ARGV[2]

if redis.call('GET', converted) ~= walk then
  return 0
end
redis.call('SET', converted, '1', 'EX', keep_s)
return 1
