#!lua flags=no-writes
-- census_fields: find what belongs to no message in a page of the hash of a queue.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    '0' to begin, then what the last page said
--       count     about how many to look at
-- REPLY cursor ('0': that was the last page), then bodies without an id in the zset, then
--       counts and reasons of no message

local messages, data = KEYS[1], KEYS[2]
local cursor, count = ARGV[1], ARGV[2]

-- A thousand bodies may be gigabytes. Redis before 7.4 cannot leave them out.
local bodies, strays, step = 0, 0, 1
local page = redis.pcall('HSCAN', data, cursor, 'COUNT', count, 'NOVALUES')
if page.err then
  page, step = redis.call('HSCAN', data, cursor, 'COUNT', count), 2
end
for i = 1, #page[2], step do
  local field = page[2][i]
  -- Attributes and counters are shorter than an id, what hangs on a message is longer.
  if #field >= 32 and not redis.call('ZSCORE', messages, string.sub(field, 1, 32)) then
    if #field == 32 then
      bodies = bodies + 1
    else
      strays = strays + 1
    end
  end
end
return {page[1], bodies, strays}
