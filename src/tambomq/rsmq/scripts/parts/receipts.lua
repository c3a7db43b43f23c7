-- receipts: for other scripts: which delivery of a message is the last one.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A delivery as it is written down: its receipt, when the message was hidden, and for how long (ms).
local function delivery(rc, token, now, hide_ms)
  return string.format('%.0f-%s %.0f %.0f', rc, token, now, hide_ms)
end

-- The receipt that counts for a message with this count of receives and this record of a delivery.
-- A client that writes no records changes the count: then the record is of an older delivery.
local function receipt_of(rc, record)
  rc = rc or '0'
  if record and record:sub(1, #rc + 1) == rc .. '-' then
    return record:match('^%S+')
  end
  return rc
end

-- Let the records outlive the time their messages are hidden by a week, and no longer: clients
-- that know nothing of them may delete the messages, or the whole queue.
local function keep_receipts(receipts, hide_ms)
  local week = 604800000
  if redis.call('PTTL', receipts) < hide_ms + week then
    redis.call('PEXPIRE', receipts, hide_ms + 2 * week)
  end
end

-- Forget some records of messages that are gone, after every 64th receive.
local function prune_receipts(receipts, messages, before, after)
  if math.floor(before / 64) == math.floor(after / 64) then
    return
  end
  local ids = redis.call('HRANDFIELD', receipts, 100)
  local scores, gone = redis.call('ZMSCORE', messages, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if not scores[i] then
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then
    redis.call('HDEL', receipts, unpack(gone))
  end
end
