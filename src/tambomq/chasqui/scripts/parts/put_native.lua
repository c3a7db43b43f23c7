-- put_native: add an entry, on servers that deduplicate ids themselves (XADD IDMP).
--
-- NEEDS dedup_window

-- XADD IDMP does not report duplicates. That matters only near the length cap, so only there do we
-- keep a window of our own.
local function is_known(window, id, near)
  return near and is_in_window(window, id)
end

local function put(stream, window, producer, id, near, ...)
  local entry = redis.call('XADD', stream, 'IDMP', producer, id, '*', ...)
  if near then
    remember(window, id)
  end
  return entry
end
