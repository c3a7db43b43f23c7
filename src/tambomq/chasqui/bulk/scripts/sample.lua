#!lua flags=no-writes
-- sample: the numbers of a queue that cost nothing to read. A key of another type counts as missing.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       delayed   zset    {chasqui:<queue>}:delayed
--       dlq       stream  {chasqui:<queue>}:dlq
--       events    stream  {chasqui:<queue>}:events
--       paused    string  {chasqui:<queue>}:paused
--       repeats   zset    {chasqui:<queue>}:repeat
-- ARGV  group     the consumer group
--       returned  the consumer that entries are assigned to when a worker releases them
--       alive_ms  a consumer that has been idle for longer is not counted
-- REPLY length of the stream, pending, returned, consumers, entries ever added, id of the first entry
--       that was never read or '', delayed, score of the first or '', dead letters, dead letters
--       ever, events ever, 1 if paused, recurring jobs, number of damaged keys

local stream, delayed, dlq, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local paused, repeats = KEYS[5], KEYS[6]
local group, returned, alive_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- With more consumers than this, all of them count as alive.
local MAX_CONSUMERS = 200
local damaged = 0

local function number(...)
  local reply = redis.pcall(...)
  if type(reply) == 'number' then
    return reply
  end
  damaged = damaged + 1
  return 0
end

local function field(row, name)
  for place = 1, #row, 2 do
    if row[place] == name then
      return row[place + 1]
    end
  end
end

local function ever_added(key)
  local row = redis.pcall('XINFO', 'STREAM', key)
  return row.err and 0 or tonumber(field(row, 'entries-added')) or 0
end

local length = number('XLEN', stream)
local pending, given_back, consumers, added, last = 0, 0, 0, nil, '-'
local groups = redis.pcall('XINFO', 'GROUPS', stream)
for _, row in ipairs(groups.err and {} or groups) do
  if field(row, 'name') == group then
    pending, consumers = field(row, 'pending'), field(row, 'consumers')
    last = '(' .. field(row, 'last-delivered-id')
    local seen, lag = field(row, 'entries-read'), field(row, 'lag')
    -- Their sum is what XINFO STREAM says, which also copies two whole entries.
    added = seen and lag and seen + lag
  end
end
if consumers > 0 and consumers <= MAX_CONSUMERS then
  consumers = 0
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    if field(row, 'name') == returned then
      given_back = field(row, 'pending')
    elseif field(row, 'idle') <= alive_ms then
      consumers = consumers + 1
    end
  end
end
added = added or ever_added(stream)
local first = length > pending and redis.pcall('XRANGE', stream, last, '+', 'COUNT', 1) or {}
local head = redis.pcall('ZRANGE', delayed, 0, 0, 'WITHSCORES')
return {
  length, pending, given_back, consumers, added, first[1] and first[1][1] or '',
  number('ZCARD', delayed), not head.err and head[2] or '', number('XLEN', dlq), ever_added(dlq),
  ever_added(events), number('EXISTS', paused), number('ZCARD', repeats), damaged,
}
