-- put_plain: for other scripts: add an entry once for each producer and id, on any server.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function put(stream, window, producer, id, ...)
  if not seen(window, id) then
    redis.call('XADD', stream, '*', ...)
    remember(window, id)
  end
end
