#!lua flags=no-writes
-- audit_messages: find the ids of a page that have no body, or are none.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    '0' to begin, then what the last page said
--       count     about how many to look at
-- REPLY cursor ('0': that was the last page), how many there were, then each id that is wrong

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
