#!lua flags=allow-oom
-- move_arrived: delete the messages in transit that have arrived, and count them.
--
-- KEYS  move     hash  progress of the move
--       transit  list  messages in transit
-- ARGV  number   of the batch that has arrived
--       count    its messages
--       sum      of their digests
-- REPLY 1 counted, 0 was counted before

local move, transit = KEYS[1], KEYS[2]
local number, count, sum = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', move, 'number') ~= number or redis.call('EXISTS', transit) == 0 then
  return 0
end
redis.call('DEL', transit)
local before = tonumber(redis.call('HGET', move, 'sum') or 0)
redis.call('HINCRBY', move, 'count', count)
redis.call('HSET', move, 'sum', string.format('%.0f', (before + sum) % 2 ^ 48))
return 1
