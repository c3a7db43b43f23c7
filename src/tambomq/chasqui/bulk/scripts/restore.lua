#!lua flags=allow-oom
-- restore: move discarded dead letters back, the oldest first, under new entry ids.
--
-- KEYS  dlq    stream  {chasqui:<queue>}:dlq
--       aside  stream  {chasqui:<queue>}:tambo:discarded:<id>
-- ARGV  count  how many at most
-- REPLY how many

local dlq, aside = KEYS[1], KEYS[2]
local count = ARGV[1]

redis.call('XLEN', dlq)
local rows = redis.call('XRANGE', aside, '-', '+', 'COUNT', count)
for _, row in ipairs(rows) do
  redis.call('XADD', dlq, '*', unpack(row[2]))
  redis.call('XDEL', aside, row[1])
end
return #rows
