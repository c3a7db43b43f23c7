-- lists: the dedicated queues of all who receive a key.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A set that is no set has no members.
local function members(set)
  local found = redis.pcall('SMEMBERS', set)
  return found.err and {} or found
end

local function lists_of(consumers, peers_prefix, list_prefix)
  local lists = {}
  for _, consumer in ipairs(members(consumers)) do
    for _, peer in ipairs(members(peers_prefix .. consumer)) do
      lists[#lists + 1] = list_prefix .. consumer .. '_' .. peer
    end
  end
  return lists
end
