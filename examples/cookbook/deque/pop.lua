-- Deque: takes the value at one end of a list that consists of shards. When there is none, it writes nothing.
--
-- KEYS  1 ends    hash, as push writes it
--       2 bell    list, as push writes it
--       3 op      hash: what, value; the answer to this operation
--       4 shard   list: the shard at this end, if the guess is right
-- ARGV  1 side    left or right
--       2 guess   the number of the shard in KEYS
--       3 keep    milliseconds that a shard is kept after its latest change
--       4 replay  milliseconds that the answer to this operation is kept
-- Returns {reason, value, at}
--       reason    ok, replayed (taken before by the same operation), conflict (it was another operation),
--                 empty, moved (the guess is wrong, or the shard had expired and is dropped: call again with
--                 the key of shard at)
--       value     that was taken, else ''
--       at        the number of the shard at this end

local ends, bell, op, shard = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local side, guess, keep, replay = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local what = 'pop ' .. side
local done = redis.call('HMGET', op, 'what', 'value')
if done[1] == what then
  return {'replayed', done[2], guess}
elseif done[1] then
  return {'conflict', '', guess}
end
local known = redis.call('HMGET', ends, 'first', 'last')
if not known[1] then
  redis.call('DEL', bell) -- if it should have outlived the ends: nobody may wait for an empty list in a loop
  return {'empty', '', 0}
end
local first, last = tonumber(known[1]), tonumber(known[2])
local at, command, step = last, 'RPOP', -1
if side == 'left' then
  at, command, step = first, 'LPOP', 1
end
if at ~= guess then
  return {'moved', '', at}
end

local value = redis.call(command, shard)
if redis.call('EXISTS', shard) == 1 then
  redis.call('PEXPIRE', shard, keep)
elseif first == last then
  redis.call('DEL', ends, bell)
else
  at = at + step
  redis.call('HSET', ends, side == 'left' and 'first' or 'last', at)
end
redis.call('PEXPIRE', bell, keep)
redis.call('PEXPIRE', ends, keep) -- no earlier than any shard
if not value then
  return {'moved', '', at}
end
redis.call('HSET', op, 'what', what, 'value', value)
redis.call('PEXPIRE', op, replay)
return {'ok', value, at}
