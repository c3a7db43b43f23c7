#!lua
-- set_attributes: change a queue's settings.
--
-- KEYS  data          hash    <ns>:<queue>:Q
--       change        string  <ns>:<queue>:set:<token>
-- ARGV  keep_s        for how long it is known that this was done
--       field, value  …       of vt, delay, maxsize
-- REPLY 1 changed, nil if the queue does not exist

local data, change = KEYS[1], KEYS[2]
local keep_s = ARGV[1]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

-- A repetition after a lost reply must not undo a later change by another client.
if not redis.call('SET', change, '1', 'NX', 'EX', keep_s) then
  return 1
end
redis.call('HSET', data, 'modified', redis.call('TIME')[1])
for i = 2, #ARGV, 2 do
  redis.call('HSET', data, ARGV[i], ARGV[i + 1])
end
return 1
