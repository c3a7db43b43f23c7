#!lua flags=no-writes
-- stream_excerpts: read the ends of long fields of stream entries, one bounded part per call.
--
-- KEYS  stream  stream
-- ARGV  verb    XRANGE or XREVRANGE
--       from    first id of the range; '(' leaves it out
--       upto    last id
--       count   entries looked at, at most
--       bytes   of each value
--       id      value that the field `id` must have; '' for any
-- REPLY how many were looked at, the id to continue after ('' at the end), then for each entry its id
--       and a flat list: field, head, tail, size, …
-- NEEDS excerpt

local stream = KEYS[1]
local verb, from, upto = ARGV[1], ARGV[2], ARGV[3]
local count, bytes, id = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
-- A foreign entry may have any number of fields.
local MAX_FIELDS = 64

local function is_wanted(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'id' then
      return fields[i + 1] == id
    end
  end
  return false
end

-- Start with small pages: a large page of the largest entries would block the server for seconds.
local looked, read, page, reply = 0, 0, 1, {0, ''}
while looked < count and read < 1000000 do
  page = math.min(page, count - looked)
  local rows = redis.call(verb, stream, from, upto, 'COUNT', page)
  for _, row in ipairs(rows) do
    local fields, cut = row[2], {}
    for i = 1, #fields, 2 do
      read = read + #fields[i + 1]
    end
    if id == '' or is_wanted(fields) then
      for i = 1, math.min(#fields, 2 * MAX_FIELDS), 2 do
        cut[#cut + 1] = fields[i]:sub(1, bytes)
        cut[#cut + 1], cut[#cut + 2], cut[#cut + 3] = excerpt(fields[i + 1], bytes)
      end
      reply[#reply + 1] = {row[1], cut}
    end
    from = '(' .. row[1]
  end
  looked = looked + #rows
  reply[2] = #rows > 0 and from:sub(2) or reply[2]
  if #rows < page then
    reply[2] = ''
    break
  end
  page = page * 2
end
reply[1] = looked
return reply
