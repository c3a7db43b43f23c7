-- is_owner: check that a consumer still owns a pending entry.

-- XACK checks only the group. Without this check a worker that was frozen for too long would end a
-- job that another worker has claimed since.
local function is_owner(stream, group, consumer, entry)
  local row = redis.pcall('XPENDING', stream, group, entry, entry, 1, consumer)
  return not row.err and #row == 1
end
