#!lua
-- sink_record: append the entries of a chunk to a journal, all or none, exactly once.
--
-- KEYS  journal  stream  {tambo:<protocol>:<queue>}:journal
--       fence    hash    {tambo:<protocol>:<queue>}:fence:<query>
-- ARGV  batch    number of the chunk's batch; below the fence's floor nothing is written
--       token    id of the chunk
--       digest   digest of the chunk's content
--       keep_s   TTL of the fence, in seconds
--       rest     …       runs of entries with the same fields: how many there are, how many words each
--                has, these words with '' in place of those that differ, and of each entry those
-- REPLY 1 appended, 0 was appended before,
--       -1 the token was used for another chunk, -2 its batch is below the floor
-- NEEDS fence

local journal, fence = KEYS[1], KEYS[2]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local refused = refused_by_fence(fence, batch, token, digest)
if refused then
  return refused
end
local i = 5
while i <= #ARGV do
  local count, width = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local entry, own = {'XADD', journal, '*'}, {}
  for n = 1, width do
    entry[n + 3] = ARGV[i + 1 + n]
    if entry[n + 3] == '' then
      own[#own + 1] = n + 3
    end
  end
  i = i + 2 + width
  for _ = 1, count do
    for n, place in ipairs(own) do
      entry[place] = ARGV[i + n - 1]
    end
    redis.call(unpack(entry))
    i = i + #own
  end
end
remember_chunk(fence, token, digest, keep_s)
return 1
