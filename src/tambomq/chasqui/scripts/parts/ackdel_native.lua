-- ackdel_native: acknowledge and delete entries, on servers with XACKDEL.

-- After a failover the new server may not have XACKDEL.
local function ackdel(stream, group, entries)
  if redis.pcall('XACKDEL', stream, group, 'IDS', #entries, unpack(entries)).err then
    redis.call('XACK', stream, group, unpack(entries))
    redis.call('XDEL', stream, unpack(entries))
  end
end
