#!lua flags=allow-oom
-- reap: disconnect the peers of a consumer that have been silent for too long, one page per call.
--
-- Their undelivered messages are handled by `settle`.
--
-- KEYS  subscriptions       set     SUBSCRIPTIONS_<consumer>
--       peers               set     PEERS_<consumer>
--       unsettled           set     UNSETTLED
--       aside               string  ASIDE
-- ARGV  consumer
--       timeout_s           peer timeout, in seconds
--       keep_s              TTL of LASTACTION_<peer>, in seconds
--       cursor              scan cursor among the peers
--       steps               approximate budget of peers and keys
--       queue_prefix        prefix of QUEUE_<key>; likewise the next ones
--       lists_prefix
--       tally_prefix
--       leaving_prefix
--       left
--       last_action_prefix
--       handed_prefix
-- REPLY how many peers were disconnected, next position, and the keys that are to be settled
-- NEEDS set_aside, leave, observed, requeue_unacked

local subscriptions, peers, unsettled, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer, timeout_s, keep_s = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local cursor, steps = ARGV[4], tonumber(ARGV[5])
local queue_prefix, lists_prefix, tally_prefix = ARGV[6], ARGV[7], ARGV[8]
local leaving_prefix, left = ARGV[9], ARGV[10]
local last_action_prefix, handed_prefix = ARGV[11], ARGV[12]
-- Bytes of an unacknowledged batch that cost one step.
local BYTES = 4096

local now = redis.call('TIME')
now = now[1] + now[2] / 1000000

local function is_silent(peer)
  local last = tonumber(redis.pcall('GET', last_action_prefix .. peer))
  if not last or last > now + 1 then
    -- No last action is known, or the clock was set back: its timeout starts now.
    redis.call('SET', last_action_prefix .. peer, math.floor(now), 'EX', keep_s)
    return false
  end
  -- Last actions are stored in whole seconds; round in the peer's favour.
  return now - last - 1 >= timeout_s
end

local places = {}
local function place_of(key)
  if not places[key] then
    local place = {key = key, tally = tally_prefix .. key, aside = aside, left = left, observed = {}}
    place.leaving, place.unsettled, place.queue = leaving_prefix .. key, unsettled, queue_prefix .. key
    places[key] = place
  end
  return places[key]
end

local page = redis.call('SSCAN', peers, cursor, 'COUNT', steps)
local disconnected, keys, following = 0, nil, page[1]
for _, peer in ipairs(page[2]) do
  steps = steps - 1
  if is_silent(peer) then
    if steps <= 0 and keys then
      -- The next call starts over; disconnected peers are no longer in the set.
      following = 'again'
      break
    end
    keys = keys or redis.call('SMEMBERS', subscriptions)
    local function list_of(key)
      return lists_prefix .. key .. '_' .. consumer .. '_' .. peer
    end
    local function sound_list_of(key)
      drop_unsound(list_of(key))
      return list_of(key)
    end
    steps = steps - requeue_unacked(handed_prefix .. consumer .. '_' .. peer, nil, sound_list_of) / BYTES
    local cost, is_all = leave(keys, place_of, tally_prefix, list_of, steps)
    steps = steps - cost
    if not is_all then
      following = 'again'
      break
    end
    redis.call('SREM', peers, peer)
    disconnected = disconnected + 1
  end
end

local due = {}
for _, place in pairs(places) do
  if append_observed(place.tally, place.observed) or place.is_unsettled then
    unsettle(place)
    due[#due + 1] = place.key
  end
end
return {disconnected, following, due}
