#!lua flags=no-writes
-- audit_fields: find the fields without a message in a page of a queue's hash.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    scan cursor; '0' to start
--       count     approximate page size
-- REPLY next cursor ('0' after the last page), then each field that belongs to no message

local messages, data = KEYS[1], KEYS[2]
local cursor, count = ARGV[1], ARGV[2]

-- Without NOVALUES a page may contain gigabytes of bodies. Redis before 7.4 does not have it.
local step = 1
local page = redis.pcall('HSCAN', data, cursor, 'COUNT', count, 'NOVALUES')
if page.err then
  page, step = redis.call('HSCAN', data, cursor, 'COUNT', count), 2
end
local wrong = {page[1]}
for i = 1, #page[2], step do
  local field = page[2][i]
  -- Attributes and counters are shorter than an id; per-message fields are longer.
  if #field >= 32 then
    local id = string.sub(field, 1, 32)
    local held = redis.call('ZSCORE', messages, id)
    -- Fields of a body without an id are reported with the body.
    if not held and (#field == 32 or redis.call('HEXISTS', data, id) == 0) then
      wrong[#wrong + 1] = field
    end
  end
end
return wrong
