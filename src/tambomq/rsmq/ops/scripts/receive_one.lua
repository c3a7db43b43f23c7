#!lua flags=allow-oom
-- receive_one: take the oldest visible message and hide it from others.
--
-- The same as receive with a count of 1, in two thirds of the time: the most frequent of all
-- operations has a script of its own. What is damaged it leaves to receive.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  vt        seconds to hide it, or '' for the queue's own
--       token     a name for this delivery that no other has
-- REPLY visible_at (ms), id, body, rc, fr; nothing visible: 0, then the ms until something is, or
--       -1 when nothing will be, then now (ms); 0, 0 when receive must look; nil when there is no
--       such queue

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]
local vt, token = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local first = redis.call('ZRANGE', messages, 0, 0, 'WITHSCORES')
local id = first[1] or ''
local rc_field, fr_field = id .. ':rc', id .. ':fr'
local stored = redis.call('HMGET', data, 'vt', id, 'totalrecv', rc_field, fr_field)
if not stored[1] then
  return nil
end
if not first[1] then
  return {0, -1, now}
end
local wait = math.ceil(first[2] - now)
if wait > 0 then
  -- Hidden later than now: the clock was set back, and receive sees to it.
  local at = string.match(redis.call('HGET', receipts, id) or '', ' (%d+)%.%d+ %S+$')
  return {0, (tonumber(at) or 0) * 1000 > now and 0 or wait, now}
end

local hide, body = tonumber(vt == '' and stored[1] or vt), stored[2]
local total, rc = tonumber(stored[3] or 0), tonumber(stored[4] or 0)
local sound = hide and hide >= 0 and hide <= 9999999 and body
  and total and total >= 0 and total < 2 ^ 53 and total % 1 == 0
  and rc and rc >= 0 and rc < 2 ^ 53 and rc % 1 == 0
if not sound then
  return {0, 0}
end

local visible_at = now + math.floor(hide * 1000 + 0.5)
local fr = rc > 0 and tonumber(stored[5]) or now
-- First the key that has not been read: if it is of another type, nothing has been written yet.
record(receipts, messages, visible_at - now, total, total + 1, id,
  counted(rc + 1) .. '-' .. token .. ' ' .. time[1] .. '.' .. time[2] .. ' ' .. hide)
redis.call('ZADD', messages, visible_at, id)
redis.call('HSET', data, 'totalrecv', total + 1, rc_field, rc + 1, fr_field, fr)
return {visible_at, id, body, rc + 1, fr}
