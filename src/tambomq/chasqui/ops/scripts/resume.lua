-- resume: let workers of a paused queue start jobs again.
--
-- KEYS  paused   string  {chasqui:<queue>}:paused
--       window   zset    {chasqui:<queue>}:idmp:requests
-- ARGV  request  id of this request: a repeated request has no effect
-- REPLY 1 resumed, 0 was not paused
-- NEEDS dedup_window

local paused, window = KEYS[1], KEYS[2]
local request = ARGV[1]

if is_in_window(window, request) then
  return 1
end
local count = redis.call('DEL', paused)
if count == 1 then
  remember(window, request)
end
return count
