#!lua flags=allow-oom
-- hide: choose anew when messages become visible.
--
-- KEYS  messages     zset  <ns>:<queue>
--       data         hash  <ns>:<queue>:Q
-- ARGV  vt           seconds from now
--       id, receipt  …     a message, and the rc (0: never received) it must still have, or ''
-- REPLY 1 or 0 for each: done, or not there or received by another since;
--       nil when there is no such queue

local messages, data = KEYS[1], KEYS[2]
local vt = ARGV[1]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

local time = redis.call('TIME')
local visible_at = time[1] * 1000 + math.floor(time[2] / 1000) + math.floor(vt * 1000 + 0.5)

local reply = {}
for i = 2, #ARGV, 2 do
  local id, receipt = ARGV[i], ARGV[i + 1]
  local ours = receipt == '' or (redis.call('HGET', data, id .. ':rc') or '0') == receipt
  if ours and redis.call('ZSCORE', messages, id) then
    redis.call('ZADD', messages, visible_at, id)
    reply[#reply + 1] = 1
  else
    reply[#reply + 1] = 0
  end
end
return reply
