#!lua flags=no-writes
-- audit_messages: find malformed ids, and ids without a body, in a page.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    scan cursor; '0' to start
--       count     approximate page size
-- REPLY next cursor ('0' after the last page), how many there were, then each id that is wrong

local messages, data = KEYS[1], KEYS[2]
local cursor, count = ARGV[1], ARGV[2]

local page = redis.call('ZSCAN', messages, cursor, 'COUNT', count)
local wrong = {page[1], #page[2] / 2}
for i = 1, #page[2], 2 do
  local id = page[2][i]
  if #id ~= 32 or redis.call('HEXISTS', data, id) == 0 then
    wrong[#wrong + 1] = id
  end
end
return wrong
