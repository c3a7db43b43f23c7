-- ackdel_plain: for other scripts: acknowledge and delete entries, on any server.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function ackdel(stream, group, entries)
  redis.call('XACK', stream, group, unpack(entries))
  redis.call('XDEL', stream, unpack(entries))
end
