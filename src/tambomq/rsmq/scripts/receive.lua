#!lua flags=allow-oom
-- receive: take the oldest visible messages and hide them from others.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  count     how many at most
--       vt        seconds to hide them, or '' for the queue's own
-- REPLY visible_at (ms), then id, body, rc, fr of each; nothing visible: 0, then the ms until
--       something is (0: may be already), or -1 when nothing will be; nil when there is no such queue;
--       a string when its settings are no numbers

local messages, data = KEYS[1], KEYS[2]
local count, vt = tonumber(ARGV[1]), ARGV[2]

local own = redis.call('HGET', data, 'vt')
if not own then
  return nil
end
local hide = tonumber(vt == '' and own or vt)
if not (hide and hide >= 0 and hide <= 9999999) then
  return 'vt is "' .. own .. '"'
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local visible_at = now + math.floor(hide * 1000 + 0.5)

-- Counts that somebody has damaged are no reason to fail half-way: those of a message begin anew.
local reply = {visible_at}
local function take(id, body)
  redis.call('ZADD', messages, visible_at, id)
  redis.pcall('HINCRBY', data, 'totalrecv', 1)
  local rc, fr = redis.pcall('HINCRBY', data, id .. ':rc', 1), nil
  if type(rc) ~= 'number' then
    rc = 1
    redis.call('HSET', data, id .. ':rc', rc)
  end
  if rc > 1 then
    fr = tonumber(redis.call('HGET', data, id .. ':fr'))
  end
  if not fr then
    fr = now
    redis.call('HSET', data, id .. ':fr', now)
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, body, rc, fr
end

-- An id without a body is nobody's message. It is put aside for as long as a message is,
-- but at least 30 s, so that it never stands in the way; `queue stats` counts it.
local aside, skipped = math.max(visible_at, now + 30000), 0
repeat
  local seen = skipped
  local ids = redis.call('ZRANGEBYSCORE', messages, '-inf', now, 'LIMIT', 0, count)
  local bodies = #ids > 0 and redis.call('HMGET', data, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if bodies[i] then
      take(id, bodies[i])
    else
      redis.call('ZADD', messages, aside, id)
      skipped = skipped + 1
    end
  end
until #reply > 1 or skipped == seen or skipped > 1000

if #reply == 1 then
  local next = redis.call('ZRANGE', messages, 0, 0, 'WITHSCORES')[2]
  return {0, next and math.max(0, math.ceil(next - now)) or -1}
end
return reply
