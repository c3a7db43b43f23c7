#!lua flags=allow-oom
-- prune_fence: forget the chunks of batches that are over, and let nobody write for these any more.
--
-- KEYS  fence   hash  of a queue and a query
-- ARGV  floor   the number of the first batch that may be written again
--       keep_s  for how long the fence is kept
-- REPLY how many chunks were forgotten

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
