#!lua flags=no-writes
-- ahead: count the entries of a stream between two others, one bounded part per call.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream
-- ARGV  after   entries later than this one
--       before  entries earlier than this one
-- REPLY how many, and the entry to continue after ('' at the end)

local stream = KEYS[1]
local after, before = ARGV[1], ARGV[2]

-- Start with small pages: a large page of the largest jobs would block the server for seconds.
local counted, bytes, page = 0, 0, 1
while counted < 500 and bytes < 1000000 do
  local rows = redis.call('XRANGE', stream, '(' .. after, '(' .. before, 'COUNT', page)
  for _, row in ipairs(rows) do
    for _, field in ipairs(row[2]) do
      bytes = bytes + #field
    end
    after = row[1]
  end
  counted = counted + #rows
  if #rows < page then
    return {counted, ''}
  end
  page = page * 2
end
return {counted, after}
