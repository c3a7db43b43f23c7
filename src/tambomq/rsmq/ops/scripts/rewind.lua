#!lua flags=allow-oom
-- rewind: hide messages anew that were hidden by a clock which has been set back since.
--
-- KEYS  messages  zset  <ns>:<queue>
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  cursor    '0' to begin, then what the last page said
-- REPLY cursor ('0': that was the last page), and how many were hidden anew

local messages, receipts = KEYS[1], KEYS[2]
local cursor = ARGV[1]

local next, count = rewind(messages, receipts, redis.call('TIME'), cursor)
return {next, count}
