#!lua flags=no-writes
-- excerpts: read messages by score with the beginnings of their bodies, one bounded part per call.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  low       first score of the range; with REV the last
--       high      last score; with REV the first
--       order     'REV' for the latest first, or ''
--       skip      messages of the range to skip
--       count     messages, at most
--       bytes     of each body and reason
-- REPLY id, score, size of the body (-1 without one), its head, rc, fr, head of the reason and
--       delivery record of each (nil for missing fields); nil if the queue does not exist

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]
local low, high, order = ARGV[1], ARGV[2], ARGV[3]
local skip, count, bytes = ARGV[4], ARGV[5], tonumber(ARGV[6])

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end
local range = {'ZRANGE', messages, low, high, 'BYSCORE'}
if order ~= '' then
  range[#range + 1] = order
end
for _, word in ipairs({'LIMIT', skip, count, 'WITHSCORES'}) do
  range[#range + 1] = word
end

-- Bodies beyond 1 MB in total are not read: of each only its size is known.
local reply, left = {}, 1000000
local listed = redis.call(unpack(range))
for i = 1, #listed, 2 do
  local id = listed[i]
  local size, head = redis.call('HSTRLEN', data, id), ''
  if size <= left then
    local body = redis.call('HGET', data, id)
    left = left - size
    head, size = body and body:sub(1, bytes), body and size or -1
  end
  local stored = redis.call('HMGET', data, id .. ':rc', id .. ':fr', id .. ':why')
  reply[#reply + 1] = {id, listed[i + 1], size, head, stored[1], stored[2],
    stored[3] and stored[3]:sub(1, bytes), redis.call('HGET', receipts, id)}
end
return reply
