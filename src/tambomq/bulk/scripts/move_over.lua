#!lua flags=allow-oom
-- move_over: forget a move that has nothing on its way.
--
-- KEYS  move     hash  how far the move has come
--       transit  list  what is on its way
-- ARGV  run      the move's name
-- REPLY 1 forgotten, 0 is another by now, or not over

local move, transit = KEYS[1], KEYS[2]
local run = ARGV[1]

if redis.call('HGET', move, 'run') ~= run or redis.call('EXISTS', transit) == 1 then
  return 0
end
return redis.call('DEL', move)
