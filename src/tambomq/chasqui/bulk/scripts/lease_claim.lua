#!lua flags=allow-oom
-- lease_claim: take jobs for a lease and write them down.
--
-- KEYS  stream      stream  {chasqui:<queue>}:stream
--       ledger      hash    {chasqui:<queue>}:lease:<lease>
--       members     list    {chasqui:<queue>}:lease:<lease>:members
--       paused      string  {chasqui:<queue>}:paused
--       events      stream  {chasqui:<queue>}:events
-- ARGV  owner       who has the lease
--       number      of the claim
--       mark        a name for it, if it is new
--       have        jobs this caller has put into it before
--       count       how many more, at most 1000
--       hide_ms     for how long others leave them alone
--       group       whose jobs
--       consumer    in whose name
--       idle_ms     what another has let lie for so long is taken over
--       events_cap  events that are kept; 0 writes none
-- REPLY how many are in the claim, how many of them are new, its mark; 'fenced' and who has the
--       lease; 'astray' and how many claims are over

local stream, ledger, members, paused, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, number, mark, have = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local count, hide_ms, group, consumer = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local idle_ms, events_cap = ARGV[9], ARGV[10]

local refused, _, known = not_to_make(ledger, owner, number)
if refused then
  return refused
end
-- What was claimed and never told is told now, as it is.
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
  -- Only for the events. The attempt is the last number of an envelope in its usual form.
  local id, last = job_id(body), body:byte(-1)
  local attempt = body:byte(1) == 0x94 and last < 0x80 and last or 0
  note(events, events_cap, 'active', id, now, name, 'attempt', attempt + 1)
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
  redis.call('HSET', ledger, 'claim', number, 'mark', mark, 'hidden_until', now + hide_ms)
  redis.call('HDEL', ledger, 'released')
end
return {size + #taken, #taken, mark}
