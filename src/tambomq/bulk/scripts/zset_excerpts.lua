#!lua flags=no-writes
-- zset_excerpts: read the ends of long members of a sorted set by score, one bounded part per call.
--
-- KEYS  zset   zset
-- ARGV  low    first score of the range
--       high   last score
--       skip   members of the range to skip
--       count  members, at most
--       bytes  of each member
-- REPLY 1 if these are all of the range, else 0; then head, tail, size and score of each; fewer than
--       asked if they are large
-- NEEDS excerpt

local zset = KEYS[1]
local low, high, skip = ARGV[1], ARGV[2], tonumber(ARGV[3])
local count, bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

local read, found, page, reply = 0, 0, 1, {0}
while found < count and read < 1000000 do
  page = math.min(page, count - found)
  local rows = redis.call('ZRANGE', zset, low, high, 'BYSCORE', 'LIMIT', skip + found, page, 'WITHSCORES')
  for i = 1, #rows, 2 do
    read = read + #rows[i]
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = excerpt(rows[i], bytes)
    reply[at + 4] = rows[i + 1]
  end
  found = found + #rows / 2
  if #rows < 2 * page then
    reply[1] = 1
    break
  end
  page = page * 2
end
return reply
