-- record: write delivery records, and expire records that are no longer needed.

-- Format a count as an integer; Lua writes large numbers as 1e+14.
local function counted(rc)
  return rc < 1e14 and rc or string.format('%.0f', rc)
end

-- Keep the records for at least a week beyond the visibility timeout, and at most two: clients that
-- do not write records may delete the messages, or the whole queue.
local function keep_receipts(receipts, hide_ms)
  local week = 604800000
  if redis.call('PTTL', receipts) < hide_ms + week then
    redis.call('PEXPIRE', receipts, hide_ms + 2 * week)
  end
end

-- After records were written: extend the TTL of the key. With *sample*, check up to 100 records and
-- delete those whose messages no longer exist.
local function tidy_receipts(receipts, messages, hide_ms, sample)
  keep_receipts(receipts, hide_ms)
  if not sample then
    return
  end
  local ids = redis.call('HRANDFIELD', receipts, 100)
  local scores, deleted = redis.call('ZMSCORE', messages, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if not scores[i] and id ~= '' then
      deleted[#deleted + 1] = id
    end
  end
  if #deleted > 0 then
    redis.call('HDEL', receipts, unpack(deleted))
  end
end

-- Write ids and their records. The field '' keeps the key alive when no record is left: creating the
-- key and setting its TTL for every message would take longer than everything else. *before* and
-- *after*: messages ever received from the queue; a sample is checked after every 64th.
local function record(receipts, messages, hide_ms, before, after, ...)
  local made = redis.call('HSET', receipts, '', '', ...) > select('#', ...) / 2
  local sample = math.floor(before / 64) ~= math.floor(after / 64)
  if made or sample or hide_ms > 86400000 then
    tidy_receipts(receipts, messages, hide_ms, sample)
  end
end
