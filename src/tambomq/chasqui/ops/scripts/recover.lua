-- recover: return the entries that a consumer owns but does not know of, because a reply was lost.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     consumer group
--       consumer  consumer that asks
--       held      …       entries it knows of
-- REPLY for each other: entry, fields, idle ms, deliveries before this one

local stream = KEYS[1]
local group, consumer = ARGV[1], ARGV[2]

local known = {}
for i = 3, #ARGV do
  known[ARGV[i]] = true
end
local rows, page, from = {}, nil, '-'
repeat
  page = redis.call('XPENDING', stream, group, from, '+', 1000, consumer)
  for _, row in ipairs(page) do
    from = '(' .. row[1]
    if not known[row[1]] then
      local got = redis.call('XCLAIM', stream, group, consumer, 0, row[1], 'RETRYCOUNT', row[4])[1]
      if got then
        rows[#rows + 1] = {got[1], got[2], row[3], row[4] - 1}
      end
    end
  end
until #page == 0
return rows
