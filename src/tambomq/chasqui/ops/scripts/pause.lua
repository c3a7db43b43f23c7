-- pause: stop workers from starting jobs until the queue is resumed.
--
-- KEYS  paused   string  {chasqui:<queue>}:paused
--       window   zset    {chasqui:<queue>}:idmp:requests
-- ARGV  request  id of this request: a repeated request has no effect
-- REPLY 1
-- NEEDS dedup_window

local paused, window = KEYS[1], KEYS[2]
local request = ARGV[1]

-- A repetition after a lost reply must not undo a later change by another client.
if not is_in_window(window, request) then
  redis.call('SET', paused, '1')
  remember(window, request)
end
return 1
