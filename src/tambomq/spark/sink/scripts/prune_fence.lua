#!lua flags=allow-oom
-- prune_fence: raise the fence's floor, and delete the chunks of batches below it.
--
-- KEYS  fence   hash  of a queue and a query
-- ARGV  floor   the number of the first batch that may be written again
--       keep_s  TTL of the fence, in seconds
-- REPLY how many chunks were deleted

local fence = KEYS[1]
local floor, keep_s = tonumber(ARGV[1]), ARGV[2]

local over = {}
for _, token in ipairs(redis.call('HKEYS', fence)) do
  local batch = tonumber(token:match('^(%d+)/'))
  if batch and batch < floor then
    over[#over + 1] = token
  end
end
for first = 1, #over, 1000 do
  redis.call('HDEL', fence, unpack(over, first, math.min(first + 999, #over)))
end
local before = tonumber(redis.call('HGET', fence, 'floor') or 0)
redis.call('HSET', fence, 'floor', math.max(before, floor))
redis.call('EXPIRE', fence, keep_s)
return #over
