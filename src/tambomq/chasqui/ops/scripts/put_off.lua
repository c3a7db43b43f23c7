-- put_off: postpone the next check of a repeatable spec, if the caller is the leader.
--
-- KEYS  repeat_  zset    {chasqui:<queue>}:repeat
--       lock     string  {chasqui:<queue>}:scheduler:lock
-- ARGV  holder   id of the caller
--       key      key of the spec
--       was      its next fire, as it was read
--       later    when to look again, in ms
-- REPLY 1, or 0 if another leads or has changed when it is due

local repeat_, lock = KEYS[1], KEYS[2]
local holder, key, was, later = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local score = redis.call('ZSCORE', repeat_, key)
if redis.call('GET', lock) ~= holder or not score or math.floor(math.max(0, score)) ~= tonumber(was) then
  return 0
end
redis.call('ZADD', repeat_, later, key)
return 1
