#!lua flags=no-writes
-- ahead: find the position some entries ahead in a stream.
--
-- KEYS  stream  stream  any
-- ARGV  from    an id, itself included
--       count   entries to go; at most a few thousand, Redis does nothing else meanwhile
-- REPLY how many there were, and the id of the last of them, '' if there were none

local stream = KEYS[1]
local from, count = ARGV[1], ARGV[2]
local found = redis.call('XRANGE', stream, from, '+', 'COUNT', count)
return { #found, #found > 0 and found[#found][1] or '' }
