#!lua flags=allow-oom
-- redrive_undo: move redriven messages that were not received yet back to the dead letters, unchanged.
--
-- KEYS  messages       zset    <ns>:<queue>
--       data           hash    <ns>:<queue>:Q
--       dead_messages  zset    <ns>:<queue>-dead
--       dead_data      hash    <ns>:<queue>-dead:Q
--       queues         set     <ns>:QUEUES
--       record         hash    <ns>:<queue>:redrive:<id>
--       ledger         stream  <ns>:<queue>:redrive:<id>:moved
-- ARGV  after          ledger position to start from
--       count          how many of it to look at
--       dead           name of the dead-letter queue
-- REPLY next position, '' at the end; how many were moved back, are in flight, and were not found; nil
--       if there is no such redrive
-- NEEDS journal_on, journal_on_queue

local messages, data, dead_messages, dead_data = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local queues, record, ledger = KEYS[5], KEYS[6], KEYS[7]
local after, count, dead = ARGV[1], tonumber(ARGV[2]), ARGV[3]

if redis.call('EXISTS', record) == 0 then
  return nil
end
redis.call('ZCARD', dead_messages)
local time = redis.call('TIME')
if redis.call('HEXISTS', dead_data, 'vt') == 0 then
  redis.call('HSET', dead_data, 'vt', redis.call('HGET', data, 'vt') or 30, 'delay', 0,
    'maxsize', -1, 'created', time[1], 'modified', time[1])
  redis.call('SADD', queues, dead)
end
-- From now on a redrive process that is still running moves nothing more.
redis.call('HSET', record, 'state', 'undone')

local last, back, running, missing = '', 0, 0, 0
local rows = redis.call('XRANGE', ledger, after, '+', 'COUNT', count)
for _, row in ipairs(rows) do
  local was = {}
  for i = 1, #row[2], 2 do
    was[row[2][i]] = row[2][i + 1]
  end
  local id = was.to
  local now = redis.call('HMGET', data, id, id .. ':rc')
  last = '(' .. row[1]
  if not now[1] or not redis.call('ZSCORE', messages, id) then
    missing = missing + 1
  elseif (tonumber(now[2]) or 0) > 0 then
    running = running + 1
  else
    redis.call('ZADD', dead_messages, was.at, id)
    redis.call('HSET', dead_data, id, was.body or now[1])
    for _, name in ipairs({'why', 'rc', 'fr'}) do
      if was[name] then
        redis.call('HSET', dead_data, id .. ':' .. name, was[name])
      end
    end
    redis.call('ZREM', messages, id)
    redis.call('HDEL', data, id, id .. ':rc', id .. ':fr')
    redis.call('XDEL', ledger, row[1])
    dead_lettered(id, was.why or '')
    back = back + 1
  end
end
close_journal()
if back > 0 then
  redis.call('HINCRBY', record, 'undone', back)
end
return {#rows == count and last or '', back, running, missing}
