#!lua flags=no-writes
-- audit_fields: find what belongs to no message in a page of the hash of a queue.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    '0' to begin, then what the last page said
--       count     about how many to look at
-- REPLY cursor ('0': that was the last page), then each field that belongs to no message

local messages, data = KEYS[1], KEYS[2]
local cursor, count = ARGV[1], ARGV[2]

-- A thousand bodies may be gigabytes. Redis before 7.4 cannot leave them out.
local step = 1
local page = redis.pcall('HSCAN', data, cursor, 'COUNT', count, 'NOVALUES')
if page.err then
  page, step = redis.call('HSCAN', data, cursor, 'COUNT', count), 2
end
local wrong = {page[1]}
for i = 1, #page[2], step do
  local field = page[2][i]
  -- Attributes and counters are shorter than an id, what hangs on a message is longer.
  if #field >= 32 then
    local id = string.sub(field, 1, 32)
    local held = redis.call('ZSCORE', messages, id)
    -- What hangs on a body that nobody receives is told with the body.
    if not held and (#field == 32 or redis.call('HEXISTS', data, id) == 0) then
      wrong[#wrong + 1] = field
    end
  end
end
return wrong
