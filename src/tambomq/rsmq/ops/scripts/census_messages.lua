#!lua flags=no-writes
-- census_messages: count a page of a queue's messages by state.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  cursor    scan cursor; '0' to start
--       count     approximate page size
-- REPLY next cursor ('0' after the last page), then how many are visible, in flight, delayed,
--       without a body, and the bytes of the bodies

local messages, data = KEYS[1], KEYS[2]
local cursor, count = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local visible, in_flight, delayed, bare, bytes = 0, 0, 0, 0, 0
local page = redis.call('ZSCAN', messages, cursor, 'COUNT', count)
for i = 1, #page[2], 2 do
  local id, score = page[2][i], tonumber(page[2][i + 1])
  if redis.call('HEXISTS', data, id) == 0 then
    bare = bare + 1
  else
    bytes = bytes + redis.call('HSTRLEN', data, id)
    if score <= now then
      visible = visible + 1
    elseif redis.call('HEXISTS', data, id .. ':rc') == 1 then
      in_flight = in_flight + 1
    else
      delayed = delayed + 1
    end
  end
end
return {page[1], visible, in_flight, delayed, bare, bytes}
