#!lua flags=allow-oom
-- reap: disconnect those of some peers of a consumer that have been silent for too long.
--
-- What they were owed is for `settle`.
--
-- KEYS  subscriptions       set     SUBSCRIPTIONS_<consumer>
--       peers               set     PEERS_<consumer>
--       unsettled           set     UNSETTLED
--       aside               string  ASIDE
-- ARGV  consumer
--       timeout_s           how long is too long
--       keep_s              for how long the time of the last action is kept
--       cursor              where to go on among the peers
--       steps               about so many peers and keys of theirs
--       queue_prefix        how QUEUE_<key> begins, and so on
--       lists_prefix
--       tally_prefix
--       leaving_prefix
--       left
--       last_action_prefix
--       handed_prefix
-- REPLY how many peers are gone, where to go on, and the keys that are to be settled

local subscriptions, peers, unsettled, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer, timeout_s, keep_s = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local cursor, steps = ARGV[4], tonumber(ARGV[5])
local queue_prefix, lists_prefix, tally_prefix = ARGV[6], ARGV[7], ARGV[8]
local leaving_prefix, left = ARGV[9], ARGV[10]
local last_action_prefix, handed_prefix = ARGV[11], ARGV[12]
-- What one step may be: so many bytes of a batch that was not acknowledged.
local BYTES = 4096

local now = redis.call('TIME')
now = now[1] + now[2] / 1000000

local function is_silent(peer)
  local last = tonumber(redis.pcall('GET', last_action_prefix .. peer))
  if not last or last > now + 1 then
    -- Nobody has ever looked, or the clock was set back since: its time begins now.
    redis.call('SET', last_action_prefix .. peer, math.floor(now), 'EX', keep_s)
    return false
  end
  -- It was noted in whole seconds, and nobody is to go before its time.
  return now - last - 1 >= timeout_s
end

local function places_of_all()
  local places = {}
  for i, key in ipairs(redis.call('SMEMBERS', subscriptions)) do
    -- What is of another type is found before anything is written.
    redis.call('LLEN', queue_prefix .. key)
    local tally = tally_prefix .. key
    local total = tonumber(redis.call('HGET', tally, 'dispatched')) or 0
    places[i] = {key = key, tally = tally, total = total, aside = aside, left = left}
    places[i].leaving, places[i].unsettled = leaving_prefix .. key, unsettled
    places[i].seen = {}
  end
  return places
end

local page = redis.call('SSCAN', peers, cursor, 'COUNT', steps)
local gone, places, following = 0, nil, page[1]
for _, peer in ipairs(page[2]) do
  steps = steps - 1
  if is_silent(peer) then
    if steps <= 0 and gone > 0 then
      -- Those who are gone do not come again.
      following = 'again'
      break
    end
    places = places or places_of_all()
    redis.call('SREM', peers, peer)
    local function list_of(key)
      local list = lists_prefix .. key .. '_' .. consumer .. '_' .. peer
      drop_unsound(list)
      return list
    end
    steps = steps - unhand(handed_prefix .. consumer .. '_' .. peer, nil, list_of) / BYTES
    for _, place in ipairs(places) do
      set_aside(place, list_of(place.key), place.total)
    end
    gone, steps = gone + 1, steps - 4 * #places
  end
end

local due = {}
for _, place in ipairs(places or {}) do
  if note_seen(place.tally, place.seen) or place.is_unsettled then
    unsettle(place)
    due[#due + 1] = place.key
  end
end
return {gone, following, due}
