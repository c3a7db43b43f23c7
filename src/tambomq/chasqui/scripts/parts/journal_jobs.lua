-- journal_jobs: for the twins of the scripts that add: record each job that is stored.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Where jobs are stored, whatever else the script has keys for.
local delayed, stream = table.remove(KEYS), table.remove(KEYS)
local LENGTHS = {[0xc4] = 1, [0xc5] = 2, [0xc6] = 4}

-- The id and the payload of an envelope; all that are added are of our own form.
local function job_of(envelope)
  local id, kind = job_id(envelope), envelope:byte(2)
  local at = #id + (kind == 0xd9 and 4 or kind == 0xda and 5 or 3)
  local width, size = LENGTHS[envelope:byte(at)], 0
  for place = at + 1, at + width do
    size = size * 256 + envelope:byte(place)
  end
  return id, envelope:sub(at + width + 1, at + width + size)
end

-- All of them write a job before anything else.
watch.XADD = function(command, key, ...)
  if key ~= stream then
    return made.call(command, key, ...)
  end
  claim_room()
  local reply, _, _, envelope, _, name = made.call(command, key, ...), ...
  local id, payload = job_of(envelope)
  sent(id, name or '', payload)
  return reply
end

watch.ZADD = function(command, key, ...)
  if key ~= delayed then
    return made.call(command, key, ...)
  end
  claim_room()
  local reply, run_at, member = made.call(command, key, ...), ...
  local head, length = prefix(member)
  if reply == 1 then
    local id, payload = job_of(member:sub(head + length + 1))
    local name, delay_ms = member:sub(head + 1, head + length), math.max(0, run_at - opened.now)
    sent(id, name, payload, 'delay_ms', delay_ms)
  end
  return reply
end
