-- dead_letters: put messages of a bounded queue into its dead-letter queue, which is created if necessary.

-- *ids* and *bodies* are lists; all get the reason *why*. The bounds name the dead-letter queue and
-- its keys. It has no realtime notification: its consumers poll.
local function put_dead_letters(bounds, vt, time, ids, bodies, why)
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local known = redis.call('HMGET', bounds, 'dead', 'queues', 'dead_messages', 'dead_data')
  local dead, queues, dead_messages, dead_data = known[1], known[2], known[3], known[4]
  local scores, fields = {}, {}
  for i, id in ipairs(ids) do
    scores[2 * i - 1], scores[2 * i] = now, id
    fields[4 * i - 3], fields[4 * i - 2] = id, bodies[i]
    fields[4 * i - 1], fields[4 * i] = id .. ':why', why
  end
  -- Read the keys first: one of another type then fails before anything is written.
  redis.call('ZCARD', dead_messages)
  local missing = redis.call('HEXISTS', dead_data, 'vt') == 0
  redis.call('SADD', queues, dead)
  redis.call('ZADD', dead_messages, unpack(scores))
  if missing then
    redis.call('HSET', dead_data, 'vt', vt, 'delay', 0, 'maxsize', -1,
      'created', time[1], 'modified', time[1])
  end
  redis.call('HSET', dead_data, unpack(fields))
  -- A damaged counter must not make the script fail half-way.
  redis.pcall('HINCRBY', dead_data, 'totalsent', #ids)
end
