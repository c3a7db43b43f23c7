#!lua flags=no-writes
-- arrivals: find when the earliest of some current peers of a key joined.
--
-- KEYS  consumers     set     CONSUMERS_<key>
--       tally         hash    TALLY_<key>
--       aside         string  ASIDE
-- ARGV  consumer      check the peers of this consumer; '' for all consumers
--       cursor        scan cursor
--       peers_prefix  prefix of PEERS_<consumer>
--       list_prefix   prefix of the key's dedicated queues
--       count         approximate number of peers
-- REPLY the last number of a set-aside queue, next cursor, the dispatch count when the earliest of
--       these peers joined or '', the number up to which all of them have observed, and the
--       consumers that were not checked

local consumers, tally, aside = KEYS[1], KEYS[2], KEYS[3]
local consumer, cursor, peers_prefix, list_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count = tonumber(ARGV[5])

local total = tonumber(redis.call('HGET', tally, 'dispatched')) or 0
local earliest_join, observed_by_all, rest = math.huge, total, {}

local function look(owner, peers)
  local lists = {}
  for place, peer in ipairs(peers) do
    lists[place] = list_prefix .. owner .. '_' .. peer
  end
  for place, list in ipairs(lists) do
    local waiting = redis.pcall('LLEN', list)
    local upto = total - (type(waiting) == 'number' and waiting or 0)
    local from = tonumber(redis.call('HGET', tally, list)) or upto
    earliest_join, observed_by_all = math.min(earliest_join, from), math.min(observed_by_all, upto)
  end
  count = count - #lists
end

local page
if consumer ~= '' then
  page = redis.call('SSCAN', peers_prefix .. consumer, cursor, 'COUNT', count)
  look(consumer, page[2])
else
  page = redis.call('SSCAN', consumers, cursor, 'COUNT', count)
  for _, owner in ipairs(page[2]) do
    local size = redis.pcall('SCARD', peers_prefix .. owner)
    -- A key of another type counts as an empty set.
    if type(size) == 'number' and size > math.max(count, 0) then
      rest[#rest + 1] = owner
    elseif type(size) == 'number' and size > 0 then
      look(owner, redis.call('SMEMBERS', peers_prefix .. owner))
    end
  end
end
local since = earliest_join < math.huge and string.format('%.0f', earliest_join) or ''
return {redis.call('GET', aside) or '0', page[1], since, string.format('%.0f', observed_by_all), rest}
