-- claim: take over pending entries that were not renewed for too long.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
-- ARGV  group     consumer group
--       consumer  consumer that takes them over
--       idle_ms   idle time from which they are claimed, in ms
--       count     maximum number
-- REPLY for each: entry, fields, idle ms, deliveries before this one

local stream = KEYS[1]
local group, consumer, idle_ms, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local idle = redis.call('XPENDING', stream, group, 'IDLE', idle_ms, '-', '+', count)
if #idle == 0 then
  return {}
end
local entries, before = {}, {}
for i, row in ipairs(idle) do
  entries[i] = row[1]
  before[row[1]] = row
end
local rows = {}
for _, got in ipairs(redis.call('XCLAIM', stream, group, consumer, idle_ms, unpack(entries))) do
  local was = before[got[1]]
  rows[#rows + 1] = {got[1], got[2], was[3], was[4]}
end
return rows
