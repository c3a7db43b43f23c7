#!lua flags=no-writes
-- entered: check whether a job is in a stream, one bounded part of it per call.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream
-- ARGV  after   entries later than this one
--       id      job id
-- REPLY 1 found, 0 not found; else the entry to continue after
-- NEEDS prefix

local stream = KEYS[1]
local after, id = ARGV[1], ARGV[2]

-- Start with small pages: a large page of the largest jobs would block the server for seconds.
local scanned, bytes, page = 0, 0, 4
while scanned < 500 and bytes < 1000000 do
  local rows = redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', page)
  for _, row in ipairs(rows) do
    local fields = row[2]
    for i = 1, #fields, 2 do
      if fields[i] == 'd' then
        if job_id(fields[i + 1]) == id then
          return 1
        end
        bytes = bytes + #fields[i + 1]
      end
    end
    after = row[1]
  end
  if #rows < page then
    return 0
  end
  scanned, page = scanned + #rows, page * 2
end
return after
