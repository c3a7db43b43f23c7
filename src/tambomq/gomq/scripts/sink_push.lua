#!lua
-- sink_push: append the messages of a chunk to a main queue, all of them and once.
--
-- KEYS  queue    list  QUEUE_<key>
--       fence    hash  FENCE_<key>_<query>
-- ARGV  batch    the chunk's; nothing is written for one that is below the fence's floor
--       token    names the chunk
--       digest   of what is in it
--       keep_s   for how long the fence is kept
--       message  …
-- REPLY 1 appended, 0 was appended before, -1 another chunk was under this token, -2 its batch is over

local queue, fence = KEYS[1], KEYS[2]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local known = redis.call('HMGET', fence, token, 'floor')
if known[1] then
  return known[1] == digest and 0 or -1
elseif known[2] and tonumber(batch) < tonumber(known[2]) then
  return -2
end
for first = 5, #ARGV, 1000 do
  redis.call('RPUSH', queue, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('HSET', fence, token, digest)
redis.call('EXPIRE', fence, keep_s)
return 1
