-- put_native: for other scripts: add an entry, by a server that keeps ids itself.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- It does not tell which it keeps. That matters only where there may be no room for a new one.
local function is_known(window, id, near)
  return near and seen(window, id)
end

local function put(stream, window, producer, id, near, ...)
  local entry = redis.call('XADD', stream, 'IDMP', producer, id, '*', ...)
  if near then
    remember(window, id)
  end
  return entry
end
