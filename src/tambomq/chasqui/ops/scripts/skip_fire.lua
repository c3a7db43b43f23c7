-- skip_fire: leave out the next fire of a repeatable spec.
--
-- KEYS  repeat_  zset  {chasqui:<queue>}:repeat
--       spec     hash  {chasqui:<queue>}:repeat:spec:<key>
-- ARGV  key      key of the spec
--       was      its next fire, as it was read
--       next     the one after, in ms
-- REPLY 1 skipped, 0 it has fired or changed since it was read

local repeat_, spec = KEYS[1], KEYS[2]
local key, was, next = ARGV[1], ARGV[2], ARGV[3]

local score = redis.call('ZSCORE', repeat_, key)
if not score or tonumber(score) ~= tonumber(was) then
  return 0
end
-- The scheduler corrects fires that are later than the pattern's next one, but not this one.
redis.call('HSET', spec, 'skipped_to', next)
redis.call('ZADD', repeat_, next, key)
return 1
