#!lua
-- set_attributes: change a queue's settings.
--
-- KEYS  data          hash  <ns>:<queue>:Q
-- ARGV  field, value  …     of vt, delay, maxsize
-- REPLY 1 changed, nil when there is no such queue

local data = KEYS[1]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

redis.call('HSET', data, 'modified', redis.call('TIME')[1])
for i = 1, #ARGV, 2 do
  redis.call('HSET', data, ARGV[i], ARGV[i + 1])
end
return 1
