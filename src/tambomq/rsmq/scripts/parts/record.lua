-- record: write delivery records.
-- NEEDS tidy

-- Format a count as an integer; Lua writes large numbers as 1e+14.
local function counted(rc)
  return rc < 1e14 and rc or string.format('%.0f', rc)
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
