-- owns: for other scripts: whether an entry is still in a consumer's hands.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Acknowledging asks only for the group. A worker that was frozen for too long would so end a job
-- that another has taken over since.
local function owns(stream, group, consumer, entry)
  local row = redis.pcall('XPENDING', stream, group, entry, entry, 1, consumer)
  return not row.err and #row == 1
end
