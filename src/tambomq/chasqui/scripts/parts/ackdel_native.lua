-- ackdel_native: for other scripts: acknowledge and delete entries, where XACKDEL is known.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

local function ackdel(stream, group, entries)
  redis.call('XACKDEL', stream, group, 'IDS', #entries, unpack(entries))
end
