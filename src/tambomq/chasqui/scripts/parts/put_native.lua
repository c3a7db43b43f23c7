-- put_native: for other scripts: add an entry once for each producer and id, where IDMP is known.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function put(stream, window, producer, id, ...)
  redis.call('XADD', stream, 'IDMP', producer, id, '*', ...)
end
