-- ackdel_native: for other scripts: acknowledge and delete entries, where XACKDEL is known.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A server that takes over from one that knew it may not.
local function ackdel(stream, group, entries)
  if redis.pcall('XACKDEL', stream, group, 'IDS', #entries, unpack(entries)).err then
    redis.call('XACK', stream, group, unpack(entries))
    redis.call('XDEL', stream, unpack(entries))
  end
end
