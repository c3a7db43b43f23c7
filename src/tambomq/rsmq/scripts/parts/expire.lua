-- expire: dead-letter messages that were visible for longer than their queue's TTL.
--
-- NEEDS dead_letters, journal_on

-- A script that moves larger bodies would block the server for too long.
local MAX_BYTES = 1048576

-- Handles *limit* messages at most, and fewer of large ones. Returns how many it has moved or hidden, and
-- whether there may be more. The score of a message is the time since when it is visible: those that
-- have expired are the first of the zset.
local function expire(messages, data, receipts, bounds, ttl_ms, time, limit)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local found = redis.call('ZRANGEBYSCORE', messages, '-inf', '(' .. now - ttl_ms, 'LIMIT', 0, limit)
  local vt = redis.call('HGET', data, 'vt')
  if #found == 0 or not vt then
    return 0, false
  end
  local count, bytes = 0, 0
  while count < #found and bytes < MAX_BYTES do
    count = count + 1
    bytes = bytes + redis.call('HSTRLEN', data, found[count])
  end
  local has_more = #found == tonumber(limit) or count < #found
  for i = #found, count + 1, -1 do
    found[i] = nil
  end
  local stored = redis.call('HMGET', data, unpack(found))
  local ids, bodies, fields, damaged = {}, {}, {}, {}
  for i, id in ipairs(found) do
    if stored[i] then
      local n = #fields
      ids[#ids + 1], bodies[#bodies + 1] = id, stored[i]
      fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = id, id .. ':rc', id .. ':fr', id .. ':why'
    else
      -- An id without a body is no message: it is hidden for a while, as in receive.
      damaged[#damaged + 1], damaged[#damaged + 2] = now + 30000, id
    end
  end
  if #damaged > 0 then
    redis.call('ZADD', messages, unpack(damaged))
  end
  if #ids > 0 then
    -- Fails before anything is written if it is of another type.
    redis.call('HEXISTS', receipts, '')
    put_dead_letters(bounds, vt, time, ids, bodies, 'expired')
    redis.call('HDEL', receipts, unpack(ids))
    redis.call('ZREM', messages, unpack(ids))
    redis.call('HDEL', data, unpack(fields))
    redis.call('HINCRBY', bounds, 'expired', #ids)
    dead_lettered_all(ids, 'expired')
  end
  return count, has_more
end
