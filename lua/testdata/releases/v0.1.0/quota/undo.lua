-- Quota: undoes one call of quota, exactly once. The item no longer counts when no other call received a yes
-- for it.
--
-- KEYS  1 items       hash, as quota writes it
--       2 operations  set, as quota writes it
--       3 void        string, as quota reads it
-- ARGV  1 item, 2 operation, 3 call   as they were given to quota
--       4 within    milliseconds for which a tombstone keeps the call, or a copy of it, that may still arrive
--                   from counting; 0: no tombstone
-- Returns 1 when the item no longer counts, else 0.

local items, operations, void = KEYS[1], KEYS[2], KEYS[3]
local item, operation, call, within = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local others, told, known = {}, false, false
for one in string.gmatch(redis.call('HGET', items, item) or '', '%S+') do
  local id, heard = string.match(one, '^([^=|]+)[=|]+(.*)$')
  if id == operation and heard == call then
    told = true
  else
    others[#others + 1] = one
    known = known or id == operation
  end
end
if not told then
  if within ~= '0' then
    redis.call('SET', void, '1', 'PX', within)
  end
  return 0
elseif others[#others] == '*' then
  return 0
end

-- DEL goes first, although there is nothing to delete: a full Redis accepts it, and then accepts the rest,
-- because the script has already written.
redis.call('DEL', void)
if within ~= '0' then
  redis.call('SET', void, '1', 'PX', within)
end
if not known then
  redis.call('SREM', operations, operation)
end
if #others > 0 then
  redis.call('HSET', items, item, table.concat(others, ' '))
  return 0
end
redis.call('HDEL', items, item)
return 1
