#!lua flags=no-writes
-- locate: look for a job among the entries of a stream, a part of them at a time.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream, or :dlq
-- ARGV  after   entries later than this one
--       id      the job's
-- REPLY its entry and the fields of that; 0 if it is not there; else the entry after which to go on

local stream = KEYS[1]
local after, id = ARGV[1], ARGV[2]

-- Few at first: a page of the largest jobs would stop the server for seconds.
local seen, bytes, page = 0, 0, 4
while seen < 500 and bytes < 1000000 do
  local rows = redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', page)
  for _, row in ipairs(rows) do
    local fields = row[2]
    for i = 1, #fields, 2 do
      if fields[i] == 'd' then
        if job_id(fields[i + 1]) == id then
          return row
        end
        bytes = bytes + #fields[i + 1]
      end
    end
    after = row[1]
  end
  if #rows < page then
    return 0
  end
  seen, page = seen + #rows, page * 2
end
return after
