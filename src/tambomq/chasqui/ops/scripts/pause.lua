-- pause: let workers start no job, until somebody resumes the queue.
--
-- KEYS  paused   string  {chasqui:<queue>}:paused
--       window   zset    {chasqui:<queue>}:idmp:requests
-- ARGV  request  names this request: made twice, it counts once
-- REPLY 1

local paused, window = KEYS[1], KEYS[2]
local request = ARGV[1]

-- Repeated after its reply was lost, it would undo what another has done since.
if not seen(window, request) then
  redis.call('SET', paused, '1')
  remember(window, request)
end
return 1
