-- journal_jobs: for the twins of the scripts that add: record each job that is stored.
--
-- KEYS  target  {chasqui:<queue>}:stream or :delayed; the script's others follow
-- ARGV  none
-- REPLY none

local target = KEYS[1]
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

local function sent(envelope, name, ...)
  local id, payload = job_of(envelope)
  if name == '' then
    enter(opened, #payload, 'e', 'sent', 'id', id, 'ts', opened.now, 'd', payload, ...)
  else
    enter(opened, #payload, 'e', 'sent', 'id', id, 'ts', opened.now, 'n', name, 'd', payload, ...)
  end
end

-- Both write the job before anything else.
watch.XADD = function(command, key, ...)
  if key ~= target then
    return made.call(command, key, ...)
  end
  claim_room()
  local reply, _, _, envelope, _, name = made.call(command, key, ...), ...
  sent(envelope, name or '')
  return reply
end

watch.ZADD = function(command, key, ...)
  if key ~= target then
    return made.call(command, key, ...)
  end
  claim_room()
  local reply, run_at, member = made.call(command, key, ...), ...
  local head, length = prefix(member)
  if reply == 1 then
    local name, delay_ms = member:sub(head + 1, head + length), math.max(0, run_at - opened.now)
    sent(member:sub(head + length + 1), name, 'delay_ms', delay_ms)
  end
  return reply
end
