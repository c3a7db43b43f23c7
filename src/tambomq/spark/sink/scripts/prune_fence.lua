#!lua flags=allow-oom
-- prune_fence: refuse batches before the first that may still be written, and delete a page of their chunks.
--
-- KEYS  fence        hash  of a queue and a query
-- ARGV  first_batch  the number of the first batch that may be written again
--       keep_s       TTL of the fence, in seconds
--       cursor       scan cursor; '0' to start
-- REPLY next cursor ('0' after the last page), and how many chunks were deleted

local fence = KEYS[1]
local first_batch, keep_s, cursor = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local page, over = redis.call('HSCAN', fence, cursor, 'COUNT', 500), {}
for i = 1, #page[2], 2 do
  local batch = tonumber(page[2][i]:match('^(%d+)/'))
  if batch and batch < first_batch then
    over[#over + 1] = page[2][i]
  end
end
for first = 1, #over, 1000 do
  redis.call('HDEL', fence, unpack(over, first, math.min(first + 999, #over)))
end
local before = tonumber(redis.call('HGET', fence, 'floor') or 0)
redis.call('HSET', fence, 'floor', math.max(before, first_batch))
redis.call('EXPIRE', fence, keep_s)
return {page[1], #over}
