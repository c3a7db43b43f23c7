#!lua
-- sink_push: append the messages of a chunk to a main queue, all or none, exactly once.
--
-- KEYS  queue    list  QUEUE_<key>
--       fence    hash  FENCE_<key>_<query>
-- ARGV  batch    number of the chunk's batch; below the fence's floor nothing is written
--       token    id of the chunk
--       digest   digest of the chunk's content
--       keep_s   TTL of the fence, in seconds
--       message  …
-- REPLY 1 appended, 0 was appended before,
--       -1 the token was used for another chunk, -2 its batch is below the floor
-- NEEDS fence, journal_on_publish

local queue, fence = KEYS[1], KEYS[2]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local refused = refused_by_fence(fence, batch, token, digest)
if refused then
  return refused
end
if journal_is_full() then return JOURNAL_FULL end
for first = 5, #ARGV, 1000 do
  redis.call('RPUSH', queue, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
stored(queue)
close_journal()
remember_chunk(fence, token, digest, keep_s)
return 1
