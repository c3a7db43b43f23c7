#!lua flags=allow-oom
-- restore: move discarded dead letters back as they were, the oldest first.
--
-- KEYS  messages  zset    <ns>:<queue>-dead
--       data      hash    <ns>:<queue>-dead:Q
--       aside     stream  <ns>:<queue>:discarded:<id>
-- ARGV  count     how many at most
-- REPLY how many; nil if the dead-letter queue does not exist

local messages, data, aside = KEYS[1], KEYS[2], KEYS[3]
local count = ARGV[1]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end
redis.call('ZCARD', messages)
local rows = redis.call('XRANGE', aside, '-', '+', 'COUNT', count)
for _, row in ipairs(rows) do
  local was = {}
  for i = 1, #row[2], 2 do
    was[row[2][i]] = row[2][i + 1]
  end
  redis.call('ZADD', messages, was.at, was.id)
  redis.call('HSET', data, was.id, was.body)
  for _, name in ipairs({'why', 'rc', 'fr'}) do
    if was[name] ~= '' then
      redis.call('HSET', data, was.id .. ':' .. name, was[name])
    end
  end
  redis.call('XDEL', aside, row[1])
end
return #rows
