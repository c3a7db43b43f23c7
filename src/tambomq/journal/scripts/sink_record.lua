#!lua
-- sink_record: append the entries of a chunk to a journal, all of them and once.
--
-- KEYS  journal  stream  {tambo:<protocol>:<queue>}:journal
--       fence    hash    {tambo:<protocol>:<queue>}:fence:<query>
-- ARGV  batch    the chunk's; nothing is written for one that is below the fence's floor
--       token    names the chunk
--       digest   of what is in it
--       keep_s   for how long the fence is kept
--       rest     …       runs of entries with the same fields: how many there are, how many words each
--                has, these words with '' in place of those that differ, and of each entry those
-- REPLY 1 appended, 0 was appended before, -1 another chunk was under this token, -2 its batch is over

local journal, fence = KEYS[1], KEYS[2]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local known = redis.call('HMGET', fence, token, 'floor')
if known[1] then
  return known[1] == digest and 0 or -1
elseif known[2] and tonumber(batch) < tonumber(known[2]) then
  return -2
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
redis.call('HSET', fence, token, digest)
redis.call('EXPIRE', fence, keep_s)
return 1
