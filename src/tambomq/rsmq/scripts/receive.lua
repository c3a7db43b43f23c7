#!lua flags=allow-oom
-- receive: take the oldest visible messages and hide them from others.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  count     how many at most
--       vt        seconds to hide them, or '' for the queue's own
-- REPLY visible_at (ms), then id, body, rc, fr of each; nothing visible: 0, then the ms until
--       something is (0: may be already), or -1 when nothing will be; nil when there is no such
--       queue; a string when its settings are no numbers

local messages, data = KEYS[1], KEYS[2]
local count, vt = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Counts that somebody has damaged are no reason to fail: they begin anew.
local function whole(text)
  local n = tonumber(text)
  return n and n % 1 == 0 and n >= 0 and n < 2 ^ 53 and n or 0
end

-- One look takes all it needs in one command each: a command costs a script more than a field.
local reply, skipped = {0}, 0
local function look()
  local ids = redis.call('ZRANGEBYSCORE', messages, '-inf', now, 'LIMIT', 0, count)
  local names = {'vt', 'totalrecv'}
  for i, id in ipairs(ids) do
    local n = i * 3
    names[n], names[n + 1], names[n + 2] = id, id .. ':rc', id .. ':fr'
  end

  local stored = redis.call('HMGET', data, unpack(names))
  local own = stored[1]
  local hide = tonumber(vt == '' and own or vt)
  if not own or not (hide and hide >= 0 and hide <= 9999999) then
    return own and 'vt is "' .. own .. '"'
  end

  local visible_at = now + math.floor(hide * 1000 + 0.5)
  local scores, counts = {}, {}
  for i, id in ipairs(ids) do
    local n, score = i * 3, visible_at
    if stored[n] then
      local rc = whole(stored[n + 1]) + 1
      local fr = rc > 1 and tonumber(stored[n + 2]) or now
      local r, c = #reply, #counts
      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = id, stored[n], rc, fr
      counts[c + 1], counts[c + 2], counts[c + 3], counts[c + 4] = names[n + 1], rc, names[n + 2], fr
    else
      -- An id without a body is nobody's message. It is put aside for as long as a message is,
      -- but at least 30 s, so that it never stands in the way; `queue stats` counts it.
      skipped, score = skipped + 1, math.max(visible_at, now + 30000)
    end
    scores[i * 2 - 1], scores[i * 2] = score, id
  end

  if #ids > 0 then
    redis.call('ZADD', messages, unpack(scores))
  end
  if #reply > 1 then
    reply[1] = visible_at
    redis.call('HSET', data, 'totalrecv', whole(stored[2]) + (#reply - 1) / 4, unpack(counts))
  end
  return #ids
end

repeat
  local seen = skipped
  local found = look()
  if type(found) ~= 'number' then
    return found
  end
until #reply > 1 or skipped == seen or skipped > 1000

if #reply == 1 then
  local next = redis.call('ZRANGE', messages, 0, 0, 'WITHSCORES')[2]
  reply[2] = next and math.max(0, math.ceil(next - now)) or -1
end
return reply
