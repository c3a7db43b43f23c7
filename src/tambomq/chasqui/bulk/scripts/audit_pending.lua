#!lua flags=no-writes
-- audit_pending: find entries that a group waits for and that are gone.
--
-- KEYS  stream  stream  {chasqui:<queue>}:stream
-- ARGV  group   whose
--       first   where to begin, with '(' after the first page
--       count   how many to look at
-- REPLY the last id that was looked at ('' if there was none), then each that is gone

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
