-- watched: for journalled twins: what the journal needs, and a look at what the script stores.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- The twin has two keys and four arguments more than the script, at the end; that finds its own.
local state, journal = table.remove(KEYS), table.remove(KEYS)
local due_bytes, due_entries = tonumber(table.remove(ARGV)), tonumber(table.remove(ARGV))
local most_bytes, most_entries = table.remove(ARGV), table.remove(ARGV)

local FULL = {}
local opened

local function account()
  opened = opened or open_account(journal, state, most_entries, most_bytes)
  return opened
end

-- For the first write of a script that must not be done without being recorded.
local function claim_room()
  if not opened and not fits(account(), due_entries, due_bytes) then
    error(FULL)
  end
end

-- What is only told is left out, and counted, where there is no room.
local function tell(size, event, id, ...)
  if fits(account(), 1, size) then
    enter(opened, size, 'e', event, 'id', id, 'ts', opened.now, ...)
  else
    redis.call('HINCRBY', state, 'dropped', 1)
  end
end

-- A command that stands here is done by this function instead; `after` is told the reply.
local watch, after = {}, nil
local made = redis
local redis = setmetatable({
  call = function(command, ...)
    return (watch[command] or made.call)(command, ...)
  end,
}, {__index = made})
