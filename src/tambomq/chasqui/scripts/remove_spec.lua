-- remove_spec: let a job recur no more.
--
-- KEYS  repeat_  zset  {chasqui:<queue>}:repeat
--       spec     hash  {chasqui:<queue>}:repeat:spec:<key>
-- ARGV  key      the spec's
-- REPLY 1 removed, 0 was not there

local repeat_, spec = KEYS[1], KEYS[2]
local key = ARGV[1]

redis.call('DEL', spec)
return redis.call('ZREM', repeat_, key)
