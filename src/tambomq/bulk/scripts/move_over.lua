#!lua flags=allow-oom
-- move_over: delete the record of a move that has nothing in transit.
--
-- KEYS  move     hash  progress of the move
--       transit  list  messages in transit
-- ARGV  run      id of the move
-- REPLY 1 deleted, 0 it is another move, or something is in transit

local move, transit = KEYS[1], KEYS[2]
local run = ARGV[1]

if redis.call('HGET', move, 'run') ~= run or redis.call('EXISTS', transit) == 1 then
  return 0
end
return redis.call('DEL', move)
