#!lua flags=allow-oom
-- audit_mend: repair one fault of a queue, if it is still there.
--
-- KEYS  stream   stream  {chasqui:<queue>}:stream
--       delayed  zset    {chasqui:<queue>}:delayed
--       dlq      stream  {chasqui:<queue>}:dlq
--       repeats  zset    {chasqui:<queue>}:repeat
--       own      any     the index, the spec or the lock that it is about
--       marker   string  {chasqui:<queue>}:dlid:<id>
-- ARGV  what     which fault: a function below
--       item     an entry, a member, a key of a spec
--       group    consumer group of a pending entry
-- REPLY 1 if it was repaired, else 0

local stream, delayed, dlq, repeats, own, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local what, item, group = ARGV[1], ARGV[2], ARGV[3]

local mend = {}

function mend.entry()
  local row = redis.call('XRANGE', stream, item, item)[1]
  if not row then
    return 0
  end
  local payload
  for i = #row[2] - 1, 1, -2 do
    payload = row[2][i] == 'd' and row[2][i + 1] or payload
  end
  local reason = payload and 'decode_failed' or 'malformed'
  redis.call('XADD', dlq, '*', 'd', payload or '', 'source_id', item, 'reason', reason, 'detail', 'found by an audit')
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    redis.call('XACK', stream, group[2], item)
  end
  return redis.call('XDEL', stream, item)
end

function mend.member()
  if redis.call('ZREM', delayed, item) == 0 then
    return 0
  end
  redis.call('XADD', dlq, '*', 'd', item, 'source_id', '', 'reason', 'malformed', 'detail', 'bad delayed member')
  return 1
end

function mend.pending()
  if #redis.call('XRANGE', stream, item, item) > 0 then
    return 0
  end
  return redis.call('XACK', stream, group, item)
end

function mend.index()
  local member = redis.call('GET', own)
  if not member or redis.call('ZSCORE', delayed, member) then
    return 0
  end
  return redis.call('DEL', own)
end

function mend.marker()
  local left = redis.call('PTTL', own)
  if left <= 0 then
    return 0
  end
  return redis.call('SET', marker, '1', 'PX', left, 'NX') and 1 or 0
end

function mend.schedule()
  return redis.call('HEXISTS', own, 'spec') == 0 and redis.call('ZREM', repeats, item) or 0
end

function mend.lock()
  return redis.call('PTTL', own) == -1 and redis.call('PEXPIRE', own, 5000) or 0
end

return mend[what]()
