#!lua
-- set_bounds: change the bounds of a queue; without any left, its bounds are deleted.
--
-- KEYS  data    hash  <ns>:<queue>:Q
--       bounds  hash  <ns>:<queue>:bounds
--       sizes   zset  <ns>:<queue>:bounds:sizes
-- ARGV  field, value  …     of the hash; '' deletes the field
-- REPLY 1 changed; nil if the queue does not exist

local data, bounds, sizes = KEYS[1], KEYS[2], KEYS[3]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', bounds, ARGV[i])
  else
    redis.call('HSET', bounds, ARGV[i], ARGV[i + 1])
  end
end

local own = redis.call('HMGET', bounds, 'max_messages', 'max_bytes', 'ttl_ms')
if not own[2] then
  redis.call('UNLINK', sizes)
  redis.call('HDEL', bounds, 'bytes', 'swept')
end
if not (own[1] or own[2] or own[3]) then
  redis.call('UNLINK', bounds)
end
return 1
