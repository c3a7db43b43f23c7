#!lua flags=allow-oom
-- receive: receive the oldest visible messages and hide them for the visibility timeout.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
--       bounds    hash  <ns>:<queue>:bounds
-- ARGV  count     how many at most
--       vt        seconds to hide them, or '' for the queue's own
--       token     unique token of this delivery
-- REPLY visible_at (ms), then id, body, rc, fr of each; nothing visible: 0, then the ms until
--       something is (0: may be already), or -1 when nothing will be, then now (ms); nil if
--       the queue does not exist; a string if its settings are not numbers
-- NEEDS record, rewind, expire, journal_on, journal_on_queue

local messages, data, receipts, bounds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local count, vt, token = ARGV[1], ARGV[2], ARGV[3]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply, skipped, skipped_before = {0}, 0, 0

local ttl_ms = redis.call('HGET', bounds, 'ttl_ms')
if ttl_ms and select(2, expire(messages, data, receipts, bounds, tonumber(ttl_ms), time, 500)) then
  close_journal()
  return {0, 0, now}
end

-- One command reads everything, and one per key writes: a command costs more than a field. That is
-- why the counts are computed here and not by HINCRBY.
repeat
  skipped_before = skipped
  local ids = redis.call('ZRANGEBYSCORE', messages, '-inf', now, 'LIMIT', 0, count)
  local names = {'vt', 'totalrecv'}
  for i = 1, #ids do
    local n, id = i * 3, ids[i]
    names[n], names[n + 1], names[n + 2] = id, id .. ':rc', id .. ':fr'
  end

  local stored = redis.call('HMGET', data, unpack(names))
  local own = stored[1]
  if not own then
    return nil
  end
  local hide = tonumber(vt == '' and own or vt)
  if not (hide and hide >= 0 and hide <= 9999999) then
    return 'vt is "' .. own .. '"'
  end

  local visible_at, taken = now + math.floor(hide * 1000 + 0.5), 0
  local record_end = '-' .. token .. ' ' .. time[1] .. '.' .. time[2] .. ' ' .. hide
  local scores, counts, records = {}, {'totalrecv'}, {}
  for i = 1, #ids do
    local n, score = i * 3, visible_at
    if stored[n] then
      -- A damaged count restarts at 1.
      local rc = (tonumber(stored[n + 1]) or 0) + 1
      rc = rc % 1 == 0 and rc > 0 and rc < 2 ^ 53 and rc or 1
      local fr = rc > 1 and tonumber(stored[n + 2]) or now
      local r, c = taken * 4 + 2, taken * 4 + 3
      reply[r], reply[r + 1], reply[r + 2], reply[r + 3] = ids[i], stored[n], rc, fr
      counts[c], counts[c + 1], counts[c + 2], counts[c + 3] = names[n + 1], rc, names[n + 2], fr
      records[taken * 2 + 1], records[taken * 2 + 2] = ids[i], counted(rc) .. record_end
      taken = taken + 1
    else
      -- An id without a body is no message. It is hidden like a message, but for at least 30 s, so
      -- that it does not block others; `queue stats` counts it.
      skipped, score = skipped + 1, math.max(visible_at, now + 30000)
    end
    scores[i * 2 - 1], scores[i * 2] = score, ids[i]
  end

  if taken > 0 then
    -- The unread key first: if it is of another type, the script fails before anything is written.
    local before = tonumber(stored[2]) or 0
    record(receipts, messages, visible_at - now, before, before + taken, unpack(records))
  end
  if #ids > 0 then
    redis.call('ZADD', messages, unpack(scores))
  end
  if taken > 0 then
    local total = (tonumber(stored[2]) or 0) + taken
    counts[2] = total % 1 == 0 and total > 0 and total < 2 ^ 53 and total or taken
    redis.call('HSET', data, unpack(counts))
    reply[1] = visible_at
    delivered_all(reply)
    close_journal()
    return reply
  end
until skipped == skipped_before or skipped > 1000

local next = redis.call('ZRANGE', messages, 0, 0, 'WITHSCORES')
local wait = next[1] and math.max(0, math.ceil(next[2] - now)) or -1
reply[2], reply[3] = wait > 0 and due_in(wait, messages, receipts, next, time) or wait, now
return reply
