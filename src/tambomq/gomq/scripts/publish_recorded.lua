-- publish_recorded: append to main queues and record it in their journals, all of it or nothing.
--
-- KEYS  queue, journal, state  …  list QUEUE_<key>; stream and hash {tambo:gomq:<key>}:journal
-- ARGV  most_entries           that a journal may hold
--       most_bytes             that a journal may hold
--       message                …  for each queue how many, and these; how many are to be recorded,
--                              none or all, and id and payload of each
-- REPLY how many were appended; the place of a queue whose journal is full, below 0

local most_entries, most_bytes = ARGV[1], ARGV[2]
local plans, place, refused = {}, 3, 0
for i = 1, #KEYS, 3 do
  local queue, journal, state = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  -- One that is no list is found before anything is written.
  redis.call('LLEN', queue)
  local count = tonumber(ARGV[place])
  local first, entries = place + count + 2, tonumber(ARGV[place + count + 1])
  local account, bytes = nil, 0
  if entries > 0 then
    account = open_account(journal, state, most_entries, most_bytes)
    for word = first + 1, first + 2 * entries, 2 do
      bytes = bytes + #ARGV[word]
    end
    if not fits(account, entries, bytes) then
      redis.call('HINCRBY', state, 'refused', entries)
      refused = refused == 0 and -(i + 2) / 3 or refused
    end
  end
  plans[#plans + 1] = {queue, account, place + 1, place + count, first, first + 2 * entries - 1}
  place = first + 2 * entries
end
if refused < 0 then
  return refused
end

local appended = 0
for _, plan in ipairs(plans) do
  local queue, account, from, to, first, last = unpack(plan, 1, 6)
  for start = from, to, 1000 do
    redis.call('RPUSH', queue, unpack(ARGV, start, math.min(start + 999, to)))
  end
  if account then
    for word = first, last, 2 do
      local id, payload = ARGV[word], ARGV[word + 1]
      enter(account, #payload, 'e', 'sent', 'id', id, 'ts', account.now, 'd', payload)
    end
    close_account(account)
  end
  appended = appended + to - from + 1
end
return appended
