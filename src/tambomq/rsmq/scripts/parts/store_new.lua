-- store_new: store new messages in a queue, as far as its bounds admit them.
--
-- NEEDS admit, dead_letters, journal_on

-- *scores* alternate with ids, as in ZADD; *fields* are ids and bodies, as in HSET, in the same order.
-- *vt* and *sent* are the queue's own. Returns how many are stored, and the reply of the script if the
-- queue refuses them.
local function store_new(messages, data, bounds, vt, sent, time, scores, fields)
  local count = #scores / 2
  local fit, sizes, bytes, bound, limit, held, rest_is_dead = count, nil
  if redis.call('EXISTS', bounds) == 1 then
    fit, sizes, bytes, bound, limit, held, rest_is_dead = admit(messages, bounds, fields, count)
    if bound and not rest_is_dead then
      return 0, {'BOUND_REACHED', bound, limit, held}
    end
  end

  -- A damaged counter must not make the script fail.
  sent = tonumber(sent or 0)
  if sent and sent % 1 == 0 and math.abs(sent) < 2 ^ 53 then
    fields[2 * count + 1], fields[2 * count + 2] = 'totalsent', sent + fit
  end
  -- The zset first: if it is of another type, the script fails before anything is written.
  if fit > 0 then
    redis.call('ZADD', messages, unpack(scores, 1, 2 * fit))
    redis.call('HSET', data, unpack(fields, 1, fit < count and 2 * fit or #fields))
  end
  stored(scores, fields)
  if sizes and #sizes > 0 then
    redis.call('ZADD', bounds .. ':sizes', unpack(sizes))
    redis.call('HINCRBY', bounds, 'bytes', bytes)
  end
  if fit < count then
    local ids, bodies = {}, {}
    for i = fit + 1, count do
      ids[i - fit], bodies[i - fit] = fields[2 * i - 1], fields[2 * i]
    end
    if fit > 0 and fields[2 * count + 2] then
      redis.call('HSET', data, 'totalsent', fields[2 * count + 2])
    end
    put_dead_letters(bounds, vt, time, ids, bodies, 'queue full: ' .. bound)
    redis.call('HINCRBY', bounds, 'overflowed', #ids)
    dead_lettered_all(ids, 'queue full: ' .. bound)
  end
  return fit
end
