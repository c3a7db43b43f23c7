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

local places = {}
local function place_of(key)
  if not places[key] then
    local place = {key = key, tally = tally_prefix .. key, aside = aside, left = left, seen = {}}
    place.leaving, place.unsettled, place.queue = leaving_prefix .. key, unsettled, queue_prefix .. key
    places[key] = place
  end
  return places[key]
end

local page = redis.call('SSCAN', peers, cursor, 'COUNT', steps)
local gone, keys, following = 0, nil, page[1]
for _, peer in ipairs(page[2]) do
  steps = steps - 1
  if is_silent(peer) then
    if steps <= 0 and keys then
      -- Those who are gone do not come again.
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
    steps = steps - unhand(handed_prefix .. consumer .. '_' .. peer, nil, sound_list_of) / BYTES
    local cost, is_all = leave(keys, place_of, tally_prefix, list_of, steps)
    steps = steps - cost
    if not is_all then
      following = 'again'
      break
    end
    redis.call('SREM', peers, peer)
    gone = gone + 1
  end
end

local due = {}
for _, place in pairs(places) do
  if note_seen(place.tally, place.seen) or place.is_unsettled then
    unsettle(place)
    due[#due + 1] = place.key
  end
end
return {gone, following, due}
