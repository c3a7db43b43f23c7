#!lua flags=allow-oom
-- receive_one: receive the oldest visible message and hide it for the visibility timeout.
--
-- The same as receive with a count of 1, in two thirds of the time: the most frequent operation has a
-- script of its own. Damaged data is left to receive.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
--       bounds    hash  <ns>:<queue>:bounds
-- ARGV  vt        seconds to hide it, or '' for the queue's own
--       token     unique token of this delivery
-- REPLY visible_at (ms), id, body, rc, fr; nothing visible: 0, then the ms until something is, or
--       -1 when nothing will be, then now (ms); 0, 0 when receive must look; nil if the queue does
--       not exist
-- NEEDS tidy, journal_on, journal_on_queue

local messages, data, receipts, bounds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local vt, token = ARGV[1], ARGV[2]
-- A local is found faster than a field of a global table.
local call = redis.call

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local first = call('ZRANGE', messages, 0, 0, 'WITHSCORES')
local id = first[1] or ''
local rc_field, fr_field = id .. ':rc', id .. ':fr'
local stored = call('HMGET', data, 'vt', id, 'totalrecv', rc_field, fr_field)
if not stored[1] then
  return nil
end
if not first[1] then
  return {0, -1, now}
end
local wait = math.ceil(first[2] - now)
if wait > 0 then
  -- Hidden at a time later than now: the clock was set back, and receive repairs that.
  local at = string.match(call('HGET', receipts, id) or '', ' (%d+)%.%d+ %S+$')
  return {0, (tonumber(at) or 0) * 1000 > now and 0 or wait, now}
end

-- Expired messages are moved by receive.
local ttl_ms = call('HGET', bounds, 'ttl_ms')
if ttl_ms and first[2] + ttl_ms < now then
  return {0, 0}
end

local own, body = vt == '' and stored[1] or vt, stored[2]
local hide, total, rc = tonumber(own), tonumber(stored[3] or 0), tonumber(stored[4] or 0)
local sound = hide and hide >= 0 and hide <= 9999999 and body
  and total and total >= 0 and total < 2 ^ 53 and total % 1 == 0
  and rc and rc >= 0 and rc < 2 ^ 53 and rc % 1 == 0
if not sound then
  return {0, 0}
end

local visible_at = now + math.floor(hide * 1000 + 0.5)
local fr = rc > 0 and tonumber(stored[5]) or now
-- Most messages are received once, and formatting a number is slow in Lua.
local count = rc == 0 and '1' or string.format('%.0f', rc + 1)
-- The unread key first: if it is of another type, the script fails before anything is written.
-- The field '' keeps the key, see the part `record`.
local record = count .. '-' .. token .. ' ' .. time[1] .. '.' .. time[2] .. ' ' .. own
local made = call('HSET', receipts, '', '', id, record)
if made == 2 or total % 64 == 63 or hide > 86400 then
  tidy_receipts(receipts, messages, visible_at - now, total % 64 == 63)
end
call('ZADD', messages, visible_at, id)
call('HSET', data, 'totalrecv', total + 1, rc_field, count, fr_field, fr)
delivered(id, rc + 1)
close_journal()
return {visible_at, id, body, rc + 1, fr}
