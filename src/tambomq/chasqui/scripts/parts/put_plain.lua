-- put_plain: for other scripts: add an entry once for each producer and id, on any server.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function put(stream, window, producer, id, ...)
  if producer == '' then
    redis.call('XADD', stream, '*', ...)
  elseif seen(window, id) then
    return false
  else
    redis.call('XADD', stream, '*', ...)
    remember(window, id)
  end
  return true
end
