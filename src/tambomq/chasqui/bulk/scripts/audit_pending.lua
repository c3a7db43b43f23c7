#!lua flags=no-writes
-- audit_pending: find pending entries that are no longer in the stream.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream
-- ARGV  group   consumer group
--       first   where to begin, with '(' after the first page
--       count   how many to look at
-- REPLY the last id that was checked ('' if there was none), then each that is not in the stream

local stream = KEYS[1]
local group, first, count = ARGV[1], ARGV[2], ARGV[3]

local page = redis.call('XPENDING', stream, group, first, '+', count)
local wrong = {#page > 0 and page[#page][1] or ''}
for _, row in ipairs(page) do
  if #redis.call('XRANGE', stream, row[1], row[1]) == 0 then
    wrong[#wrong + 1] = row[1]
  end
end
return wrong
