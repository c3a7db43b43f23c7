#!lua flags=allow-oom
-- rewind: repair messages that would stay hidden too long because the clock was set back.
--
-- KEYS  messages  zset  <ns>:<queue>
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  cursor    scan cursor; '0' to start
-- REPLY next cursor ('0' after the last page), and how many were repaired
-- NEEDS rewind

local messages, receipts = KEYS[1], KEYS[2]
local cursor = ARGV[1]

local next, count = rewind(messages, receipts, redis.call('TIME'), cursor)
return {next, count}
