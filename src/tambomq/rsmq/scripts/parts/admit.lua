-- admit: decide how many new messages fit within the bounds of a queue.

-- Pages of sizes that are looked at from the oldest on, and in all.
local OLDEST_PAGES, MAX_PAGES, PAGE = 8, 20, 250

-- *fields*: ids and bodies alternate; the first *count* pairs are new messages. Returns how many of them
-- fit; what to add to the sizes, and their total; and unless all fit: the bound that they exceed, its
-- value, what the queue holds, and whether the rest are dead letters.
local function admit(messages, bounds, fields, count)
  local own = redis.call('HMGET', bounds, 'max_messages', 'max_bytes', 'overflow', 'bytes', 'swept')
  local max_messages, max_bytes = tonumber(own[1]), tonumber(own[2])
  local sizes, bytes, total, added = bounds .. ':sizes', tonumber(own[4]) or 0, 0, {}
  local held = redis.call('ZCARD', messages)
  if max_bytes then
    for i = 1, count do
      local size = #fields[2 * i]
      total, added[2 * i - 1], added[2 * i] = total + size, 0, fields[2 * i - 1] .. ' ' .. size
    end
  end

  -- Messages leave a queue by many ways, and other clients know no sizes. So sizes are removed here, when
  -- the space is needed: the oldest first, since most messages leave in their order. If none of these
  -- has left, on from where the last call ended. More than one page only if there must be sizes of
  -- messages that have left.
  local pages, last, freed = 0, '', false
  while max_bytes and bytes + total > max_bytes and pages < MAX_PAGES
    and (pages == 0 or redis.call('ZCARD', sizes) > held) do
    if pages == OLDEST_PAGES and not freed then
      last = own[5] or ''
    end
    pages = pages + 1
    local page = redis.call('ZRANGEBYLEX', sizes, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, PAGE)
    local ids, gone = {}, {}
    for i, line in ipairs(page) do
      ids[i] = line:match('^(.*) %d+$')
    end
    local scores = #ids > 0 and redis.call('ZMSCORE', messages, unpack(ids)) or {}
    for i, line in ipairs(page) do
      if not scores[i] then
        gone[#gone + 1], bytes = line, bytes - tonumber(line:match('%d+$'))
      end
    end
    if #gone > 0 then
      freed = true
      redis.call('ZREM', sizes, unpack(gone))
    end
    last = #page == PAGE and page[PAGE] or ''
  end
  if freed or pages > OLDEST_PAGES then
    redis.call('HSET', bounds, 'bytes', string.format('%.0f', bytes), 'swept', last)
  end

  local bound, limit, current
  if max_messages and held + count > max_messages then
    bound, limit, current = 'max_messages', max_messages, held
  elseif max_bytes and bytes + total > max_bytes then
    bound, limit, current = 'max_bytes', max_bytes, bytes
  else
    return count, added, total
  end
  if own[3] ~= 'dead-letter' then
    redis.call('HINCRBY', bounds, 'refused', count)
    return 0, {}, 0, bound, limit, current, false
  end
  -- In their order: after the first that does not fit, none is stored.
  local fit, taken = 0, 0
  for i = 1, count do
    local size = max_bytes and #fields[2 * i] or 0
    if max_messages and held + i > max_messages or max_bytes and bytes + taken + size > max_bytes then
      break
    end
    fit, taken = i, taken + size
  end
  for i = 2 * count, 2 * fit + 1, -1 do
    added[i] = nil
  end
  return fit, added, taken, bound, limit, current, true
end
