-- ackdel_plain: acknowledge and delete entries, on any server.

local function ackdel(stream, group, entries)
  redis.call('XACK', stream, group, unpack(entries))
  redis.call('XDEL', stream, unpack(entries))
end
