#!lua flags=no-writes
-- receivers: the peers that receive a key, with what waits for each.
--
-- KEYS  consumers      set  CONSUMERS_<key>
-- ARGV  peers_prefix   prefix of PEERS_<consumer>
--       list_prefix    prefix of the key's dedicated queues
--       last_prefix    prefix of LASTACTION_<peer>
--       handed_prefix  prefix of HANDED_<consumer>_<peer>
--       key
--       max_peers      look at no more peers than this
-- REPLY 1 if there are more peers; then consumer, peer, length of the dedicated queue, time of the
--       last action in seconds or '', and messages handed out and not acknowledged, for each peer
-- NEEDS unacked_batch

local consumers = KEYS[1]
local peers_prefix, list_prefix, last_prefix = ARGV[1], ARGV[2], ARGV[3]
local handed_prefix, key, max_peers = ARGV[4], ARGV[5], tonumber(ARGV[6])
-- Decoding a larger batch would take too long; it counts as one message.
local MAX_BATCH_BYTES = 65536

local function or_else(reply, other)
  return (type(reply) == 'table' or not reply) and other or reply
end

local function handed_out(name)
  local size = or_else(redis.pcall('STRLEN', name), 0)
  if size == 0 or size > MAX_BATCH_BYTES then
    return size > 0 and 1 or 0
  end
  local batch, count = read_unacked(name), 0
  for place = 1, batch and #batch[2] or 0, 2 do
    if batch[2][place] == key and type(batch[2][place + 1]) == 'table' then
      count = count + #batch[2][place + 1]
    end
  end
  return count
end

local rows, count = {0}, 0
local found = redis.pcall('SMEMBERS', consumers)
for _, consumer in ipairs(found.err and {} or found) do
  local peers = redis.pcall('SMEMBERS', peers_prefix .. consumer)
  for _, peer in ipairs(peers.err and {} or peers) do
    count = count + 1
    if count > max_peers then
      rows[1] = 1
      return rows
    end
    local id = consumer .. '_' .. peer
    for _, value in ipairs({
      consumer, peer, or_else(redis.pcall('LLEN', list_prefix .. id), 0),
      or_else(redis.pcall('GET', last_prefix .. peer), ''), handed_out(handed_prefix .. id),
    }) do
      rows[#rows + 1] = value
    end
  end
end
return rows
