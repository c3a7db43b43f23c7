-- put_native: for other scripts: add an entry once for each producer and id, where IDMP is known.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function put(stream, window, producer, id, ...)
  local before = redis.call('XLEN', stream)
  if producer == '' then
    redis.call('XADD', stream, '*', ...)
  else
    redis.call('XADD', stream, 'IDMP', producer, id, '*', ...)
  end
  return redis.call('XLEN', stream) > before
end
