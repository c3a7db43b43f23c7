-- put_plain: for other scripts: add an entry, by any server.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function is_known(window, id, near)
  return seen(window, id)
end

local function put(stream, window, producer, id, near, ...)
  local entry = redis.call('XADD', stream, '*', ...)
  remember(window, id)
  return entry
end
