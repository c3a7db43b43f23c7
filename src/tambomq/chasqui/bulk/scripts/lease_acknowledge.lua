#!lua flags=allow-oom
-- lease_acknowledge: complete, retry or dead-letter the jobs of a committed claim, by their verdicts.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       ledger       hash    {chasqui:<queue>}:lease:<lease>
--       members      list    {chasqui:<queue>}:lease:<lease>:members
--       verdicts     hash    {chasqui:<queue>}:lease:<lease>:verdicts
--       delayed      zset    {chasqui:<queue>}:delayed
--       dlq          stream  {chasqui:<queue>}:dlq
--       events       stream  {chasqui:<queue>}:events
--       stalls       string  {chasqui:<queue>}:stalls:<id>, without the id
-- ARGV  owner        owner token of the caller
--       number       of the claim
--       claim_token  the claim's token; '' if unknown
--       count        jobs at once, at most 1000
--       group        consumer group
--       consumer     consumer that owns them
--       dlq_cap      length cap of the dead-letter stream
--       events_cap   length cap of the events stream; 0: write no events
-- REPLY how many are left, ended, to be retried, dead, no longer owned; 'fenced' and
--       the current holder's label; 'wrong_claim' and the number of the open claim
-- NEEDS ackdel_plain, owner_check, write_event, stream_cap, claims

local stream, ledger, members, verdicts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local delayed, dlq, events, stalls = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local owner, number, claim_token, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local group, consumer, dlq_cap, events_cap = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local refused = refused_ack(ledger, owner, number, claim_token)
if refused then
  return refused
end
-- Read the keys first: one of another type then fails before anything is written.
redis.call('ZCARD', delayed)
redis.call('XLEN', dlq)
local judged = redis.call('HLEN', verdicts) > 0

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local tally, jobs, entries, ended = {0, 0, 0, 0, 0}, {}, {}, {}
for i, line in ipairs(redis.call('LRANGE', members, 0, count - 1)) do
  jobs[i] = cmsgpack.unpack(line)
  entries[i] = jobs[i][1]
end

-- A job that cannot be decoded has no id, and was not run.
local function failed(id, name, attempt, reason)
  if id ~= '' then
    write_event(events, events_cap, 'failed', id, now, name, 'attempt', attempt, 'reason', reason)
  end
end

local function carry_out(verdict, entry, id, name, attempt)
  local wait_ms, size, rest = verdict:match('^r(%d+) (%d+) (.*)$')
  if wait_ms then
    redis.call('ZADD', delayed, now + wait_ms, rest:sub(size + 1))
    failed(id, name, attempt, rest:sub(1, size))
    write_event(events, events_cap, 'retry-scheduled', id, now, name, 'attempt', attempt + 1, 'backoff_ms', wait_ms)
    return 3
  end
  local reason, detail = verdict:match('^d(%S+) (.*)$')
  local row = redis.call('XRANGE', stream, entry, entry)[1]
  local fields = row and row[2] or {}
  for _, item in ipairs({'source_id', entry, 'reason', reason, detail ~= '' and 'detail' or nil, detail}) do
    fields[#fields + 1] = item
  end
  redis.call('XADD', dlq, '*', unpack(fields))
  failed(id, name, attempt, detail)
  write_event(events, events_cap, 'dlq', id, now, name, 'attempt', attempt, 'reason', reason)
  trim(dlq, dlq_cap, events, events_cap, now, 'dlq')
  return 4
end

local is_owned = owner_check(stream, group, consumer, entries)
for _, job in ipairs(jobs) do
  local entry, id, name, attempt = job[1], job[3], job[4], job[5] + 1
  local kind = 5
  if is_owned(entry) then
    local verdict = judged and redis.call('HGET', verdicts, entry)
    kind = verdict and carry_out(verdict, entry, id, name, attempt) or 2
    if kind == 2 then
      write_event(events, events_cap, 'completed', id, now, name, 'attempt', attempt)
    end
    ended[#ended + 1] = entry
    if kind ~= 3 then
      redis.call('DEL', stalls .. id)
    end
  end
  tally[kind] = tally[kind] + 1
end
if #ended > 0 then
  ackdel(stream, group, ended)
end
redis.call('LTRIM', members, count, -1)
tally[1] = redis.call('LLEN', members)
if tally[1] == 0 then
  redis.call('HSET', ledger, 'acked', number)
  redis.call('HDEL', ledger, 'claim', 'mark')
  redis.call('DEL', verdicts)
end
return tally
