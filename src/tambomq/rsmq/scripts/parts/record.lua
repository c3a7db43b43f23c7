-- record: for other scripts: write deliveries down, and let no record outlive its use.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A count as Redis stores it; Lua by itself writes long ones as 1e+14.
local function counted(rc)
  return rc < 1e14 and rc or string.format('%.0f', rc)
end

-- Let the records outlive the time their messages are hidden by a week, and not by much more:
-- clients that know nothing of them may delete the messages, or the whole queue.
local function keep_receipts(receipts, hide_ms)
  local week = 604800000
  if redis.call('PTTL', receipts) < hide_ms + week then
    redis.call('PEXPIRE', receipts, hide_ms + 2 * week)
  end
end

-- Write ids and their records down. The field '' keeps the key: to make it, to let it expire and to
-- remove it with its last record would take longer than all the rest. *before* and *after*: how
-- many messages were received from the queue. After every 64th some records are looked at whether
-- their messages are still there.
local function record(receipts, messages, hide_ms, before, after, ...)
  local made = redis.call('HSET', receipts, '', '', ...) > select('#', ...) / 2
  local due = math.floor(before / 64) ~= math.floor(after / 64)
  if made or due or hide_ms > 86400000 then
    keep_receipts(receipts, hide_ms)
  end
  if due then
    local ids = redis.call('HRANDFIELD', receipts, 100)
    local scores, gone = redis.call('ZMSCORE', messages, unpack(ids)), {}
    for i, id in ipairs(ids) do
      if not scores[i] and id ~= '' then
        gone[#gone + 1] = id
      end
    end
    if #gone > 0 then
      redis.call('HDEL', receipts, unpack(gone))
    end
  end
end
