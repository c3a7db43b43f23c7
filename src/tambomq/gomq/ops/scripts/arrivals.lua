#!lua flags=no-writes
-- arrivals: since when somebody is there who receives a key, of some who do.
--
-- KEYS  consumers     set     CONSUMERS_<key>
--       tally         hash    TALLY_<key>
--       aside         string  ASIDE
-- ARGV  consumer      whose peers to look at; '' for all consumers
--       cursor        where to go on
--       peers_prefix  how PEERS_<consumer> begins
--       list_prefix   how the dedicated queues of the key begin
--       count         about so many peers
-- REPLY the number given last to a queue that was set aside, where to go on, the number of messages
--       at the earliest arrival or '', the number up to which all have observed, and the consumers
--       that were not looked at

local consumers, tally, aside = KEYS[1], KEYS[2], KEYS[3]
local consumer, cursor, peers_prefix, list_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count = tonumber(ARGV[5])

local total = tonumber(redis.call('HGET', tally, 'dispatched')) or 0
local eldest, least, rest = math.huge, total, {}

local function look(owner, peers)
  local lists = {}
  for place, peer in ipairs(peers) do
    lists[place] = list_prefix .. owner .. '_' .. peer
  end
  for place, list in ipairs(lists) do
    local waiting = redis.pcall('LLEN', list)
    local upto = total - (type(waiting) == 'number' and waiting or 0)
    local from = tonumber(redis.call('HGET', tally, list)) or upto
    eldest, least = math.min(eldest, from), math.min(least, upto)
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
    -- What is no set has no members.
    if type(size) == 'number' and size > math.max(count, 0) then
      rest[#rest + 1] = owner
    elseif type(size) == 'number' and size > 0 then
      look(owner, redis.call('SMEMBERS', peers_prefix .. owner))
    end
  end
end
local since = eldest < math.huge and string.format('%.0f', eldest) or ''
return {redis.call('GET', aside) or '0', page[1], since, string.format('%.0f', least), rest}
