#!lua flags=allow-oom
-- lease_claim: claim jobs for a lease, and record them as members.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       ledger       hash    {chasqui:<queue>}:lease:<lease>
--       members      list    {chasqui:<queue>}:lease:<lease>:members
--       paused       string  {chasqui:<queue>}:paused
--       events       stream  {chasqui:<queue>}:events
-- ARGV  owner        owner token of the caller
--       number       of the claim
--       claim_token  token of the claim, if it is new
--       have         jobs that the caller knows to be in the claim
--       count        how many more, at most 1000
--       hide_ms      visibility timeout of the claim, in ms
--       group        consumer group
--       consumer     consumer that owns them
--       idle_ms      entries that were idle for so long are taken over
--       events_cap   length cap of the events stream; 0: write no events
-- REPLY how many are in the claim, how many of them are new, its token; 'fenced' and the current
--       holder's label; 'wrong_claim' and the number of the last ended claim
-- NEEDS write_event, prefix, claims, digest

local stream, ledger, members, paused, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, number, claim_token, have = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local count, hide_ms, group, consumer = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local idle_ms, events_cap = ARGV[9], ARGV[10]

local refused, _, known = refused_claim(ledger, owner, number)
if refused then
  return refused
end
-- If an earlier reply was lost, report the claim as it is; nothing new is claimed.
local size = redis.call('LLEN', members)
if size ~= have or count < 1 or redis.call('EXISTS', paused) == 1 then
  return {size, 0, known or ''}
end
redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = {}

local function take(entry, fields)
  local body, name = '', ''
  for i = 1, #fields, 2 do
    if fields[i] == 'd' then
      body = fields[i + 1]
    elseif fields[i] == 'n' then
      name = fields[i + 1]
    end
  end
  -- Needed only for events. In the usual encoding the attempt is the last number of an envelope.
  local id, last = job_id(body), body:byte(-1)
  local attempt = body:byte(1) == 0x94 and last < 0x80 and last or 0
  write_event(events, events_cap, 'active', id, now, name, 'attempt', attempt + 1)
  taken[#taken + 1] = cmsgpack.pack({entry, digest(body), id, name, attempt})
end

local idle = {}
for i, row in ipairs(redis.call('XPENDING', stream, group, 'IDLE', idle_ms, '-', '+', count)) do
  idle[i] = row[1]
end
if #idle > 0 then
  for _, row in ipairs(redis.call('XCLAIM', stream, group, consumer, idle_ms, unpack(idle))) do
    take(row[1], row[2])
  end
end
if #taken < count then
  local found = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count - #taken,
    'STREAMS', stream, '>')
  for _, row in ipairs(found and found[1][2] or {}) do
    take(row[1], row[2])
  end
end
if #taken == 0 then
  return {size, 0, known or ''}
end
redis.call('RPUSH', members, unpack(taken))
if size == 0 then
  redis.call('HSET', ledger, 'claim', number, 'mark', claim_token, 'hidden_until', now + hide_ms)
  redis.call('HDEL', ledger, 'released')
end
return {size + #taken, #taken, claim_token}
