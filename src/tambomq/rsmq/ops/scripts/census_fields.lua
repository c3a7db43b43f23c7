#!lua flags=no-writes
-- census_fields: count the fields without a message in a page of a queue's hash.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    scan cursor; '0' to start
--       count     approximate page size
-- REPLY next cursor ('0' after the last page), then bodies without an id in the zset, then
--       counts and reasons of no message

local messages, data = KEYS[1], KEYS[2]
local cursor, count = ARGV[1], ARGV[2]

-- Without NOVALUES a page may contain gigabytes of bodies. Redis before 7.4 does not have it.
local bodies, strays, step = 0, 0, 1
local page = redis.pcall('HSCAN', data, cursor, 'COUNT', count, 'NOVALUES')
if page.err then
  page, step = redis.call('HSCAN', data, cursor, 'COUNT', count), 2
end
for i = 1, #page[2], step do
  local field = page[2][i]
  -- Attributes and counters are shorter than an id; per-message fields are longer.
  if #field >= 32 and not redis.call('ZSCORE', messages, string.sub(field, 1, 32)) then
    if #field == 32 then
      bodies = bodies + 1
    else
      strays = strays + 1
    end
  end
end
return {page[1], bodies, strays}
