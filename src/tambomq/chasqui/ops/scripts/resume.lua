-- resume: let workers of a paused queue go on.
--
-- KEYS  paused   string  {chasqui:<queue>}:paused
--       window   zset    {chasqui:<queue>}:idmp:requests
-- ARGV  request  names this request: made twice, it counts once
-- REPLY 1 resumed, 0 was not paused

local paused, window = KEYS[1], KEYS[2]
local request = ARGV[1]

if seen(window, request) then
  return 1
end
local count = redis.call('DEL', paused)
if count == 1 then
  remember(window, request)
end
return count
