-- upsert: let a job recur, as new or instead of what recurred under its key.
--
-- KEYS  repeat_  zset  {chasqui:<queue>}:repeat
--       spec     hash  {chasqui:<queue>}:repeat:spec:<key>
-- ARGV  key      the spec's
--       next     its next fire, in ms
--       body     the spec
-- REPLY 1

local repeat_, spec = KEYS[1], KEYS[2]
local key, next, body = ARGV[1], ARGV[2], ARGV[3]

-- What is wrong with a key must be found before anything is written.
redis.call('ZCARD', repeat_)
redis.call('HSET', spec, 'spec', body)
redis.call('ZADD', repeat_, next, key)
return 1
