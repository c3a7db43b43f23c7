-- tidy: extend the TTL of delivery records, and delete records of messages that no longer exist.

-- Keep the records for at least a week beyond the visibility timeout, and at most two: clients that
-- do not write records may delete the messages, or the whole queue. With *sample*, check up to 100
-- records and delete those whose messages no longer exist. One function and not several: a script
-- creates each of its functions again at every call.
local function tidy_receipts(receipts, messages, hide_ms, sample)
  local week = 604800000
  if redis.call('PTTL', receipts) < hide_ms + week then
    redis.call('PEXPIRE', receipts, hide_ms + 2 * week)
  end
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
