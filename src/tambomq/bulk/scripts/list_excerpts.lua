#!lua flags=no-writes
-- list_excerpts: read the ends of long elements of a list, one bounded part per call.
--
-- KEYS  list   list
-- ARGV  first  index of the first
--       count  elements, at most
--       bytes  of each element
-- REPLY head, tail and size of each, in one flat list; fewer than asked if they are large
-- NEEDS excerpt

local list = KEYS[1]
local first, count, bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local read, found, page, reply = 0, 0, 1, {}
while found < count and read < 1000000 do
  page = math.min(page, count - found)
  local rows = redis.call('LRANGE', list, first + found, first + found + page - 1)
  for _, row in ipairs(rows) do
    read = read + #row
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = excerpt(row, bytes)
  end
  found = found + #rows
  if #rows < page then
    break
  end
  page = page * 2
end
return reply
