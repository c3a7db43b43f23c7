#!lua
-- discard: delete dead letters, and keep them aside for a while.
--
-- KEYS  dlq     stream  {chasqui:<queue>}:dlq
--       aside   stream  {chasqui:<queue>}:tambo:discarded:<id>
-- ARGV  keep_s  how long they can be restored, in seconds
--       letter  …       entries of the dead-letter stream
-- REPLY how many were there

local dlq, aside = KEYS[1], KEYS[2]
local keep_s = ARGV[1]

-- Read the key first: one of another type then fails before anything is written.
redis.call('XLEN', aside)
local count = 0
for i = 2, #ARGV do
  local letter = ARGV[i]
  local row = redis.call('XRANGE', dlq, letter, letter)[1]
  if row then
    redis.call('XADD', aside, '*', unpack(row[2]))
    redis.call('XDEL', dlq, letter)
    count = count + 1
  end
end
redis.call('EXPIRE', aside, keep_s)
return count
