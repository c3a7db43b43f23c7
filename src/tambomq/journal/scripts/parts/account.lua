-- account: for other scripts: enter what happened into a journal, within its bounds.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- An entry counts with its body and, for the rest of it, this much.
local ENTRY = 100

-- Whoever asks reads both keys: if one is of another type, nothing has been written yet.
local function open_account(journal, state, most_entries, most_bytes)
  local entries = redis.call('XLEN', journal)
  local seen = redis.call('HMGET', state, 'bytes', 'gone')
  local bytes = tonumber(seen[1]) or 0
  local gone = entries > 0 and (tonumber(seen[2]) or 0) or bytes
  local clock = redis.call('TIME')
  return {
    journal = journal, state = state, entries = entries, bytes = bytes, gone = gone,
    most_entries = tonumber(most_entries), most_bytes = tonumber(most_bytes),
    now = clock[1] * 1000 + math.floor(clock[2] / 1000),
  }
end

-- Whether so many entries, with so many bytes of bodies in all, find room.
local function fits(account, entries, bytes)
  return account.entries + entries <= account.most_entries
    and account.bytes - account.gone + bytes + ENTRY * entries <= account.most_bytes
end

-- Fields and values by turns, which go on as they are: a table for each would double the time.
local function enter(account, size, ...)
  account.entries, account.bytes = account.entries + 1, account.bytes + size + ENTRY
  redis.call('XADD', account.journal, '*', 'o', account.bytes, ...)
  account.changed = true
end

local function close_account(account)
  if account.changed then
    redis.call('HSET', account.state, 'bytes', account.bytes, 'gone', account.gone)
  end
end
