#!lua flags=allow-oom
-- delete: forget messages and everything counted about them.
--
-- KEYS  messages     zset  <ns>:<queue>
--       data         hash  <ns>:<queue>:Q
-- ARGV  id, receipt  …     a message, and the rc (0: never received) it must still have, or ''
-- REPLY 1 or 0 for each: forgotten, or not there or received by another since;
--       nil when there is no such queue

local messages, data = KEYS[1], KEYS[2]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

local reply = {}
for i = 1, #ARGV, 2 do
  local id, receipt = ARGV[i], ARGV[i + 1]
  local ours = receipt == '' or (redis.call('HGET', data, id .. ':rc') or '0') == receipt
  if ours and redis.call('ZREM', messages, id) == 1 then
    redis.call('HDEL', data, id, id .. ':rc', id .. ':fr', id .. ':why')
    reply[#reply + 1] = 1
  else
    reply[#reply + 1] = 0
  end
end
return reply
