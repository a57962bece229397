-- Deque: adds a value at one end of a list that consists of short lists, its shards. A refused attempt writes
-- nothing.
--
-- KEYS  1 ends    hash: first, last, the numbers of the outermost shards; exists while there are values
--       2 bell    list of one element; exists while there are values
--       3 op      hash: what; the mark of this operation
--       4 shard   list: the shard at this end, if the guess is right
--       5 beyond  list: the next shard in this direction
-- ARGV  1 side    left or right
--       2 guess   the number of the shard in KEYS
--       3 value   any bytes
--       4 what    encoded text that identifies the push
--       5 size    values that a shard has at most
--       6 shards  shards that the list has at most
--       7 keep    milliseconds that a shard is kept after its latest change
--       8 replay  milliseconds that the mark of this operation is kept
-- Returns {reason, at}
--       reason    ok, replayed (pushed before by the same operation), conflict (it was another operation),
--                 full, moved (the guess is wrong: call again with the keys of shard at)
--       at        the number of the shard at this end

local ends, bell, op, shard, beyond = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local side, guess, value, what = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local size, shards, keep, replay = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]

local done = redis.call('HGET', op, 'what')
if done == what then
  return {'replayed', guess}
elseif done then
  return {'conflict', guess}
end
local known = redis.call('HMGET', ends, 'first', 'last')
local new = not known[1]
local first, last = tonumber(known[1] or 0), tonumber(known[2] or 0)
local at, command, step = last, 'RPUSH', 1
if side == 'left' then
  at, command, step = first, 'LPUSH', -1
end
if at ~= guess then
  return {'moved', at}
elseif not new and redis.call('LLEN', shard) >= size then
  if last - first + 1 >= shards then
    return {'full', at}
  end
  new, at, shard = true, at + step, beyond
end

if new then
  redis.call('DEL', shard) -- what is left of a list whose ends have expired
end
redis.call(command, shard, value)
if side == 'left' then
  first = at
else
  last = at
end
redis.call('HSET', ends, 'first', first, 'last', last)
if redis.call('EXISTS', bell) == 0 then
  redis.call('RPUSH', bell, '1')
end
redis.call('HSET', op, 'what', what)
redis.call('PEXPIRE', op, replay)
redis.call('PEXPIRE', shard, keep)
redis.call('PEXPIRE', bell, keep)
redis.call('PEXPIRE', ends, keep) -- no earlier than any shard
return {'ok', at}
