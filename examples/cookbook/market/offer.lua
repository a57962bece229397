-- Market: puts an item on offer, changes its price, or takes it off offer. An item that the market does not
-- know belongs to who offers it first. A refused attempt writes nothing.
--
-- KEYS  1 funds   hash, as deposit writes it
--       2 items   hash: item -> 'owner price', price 0: not on offer
--       3 op      hash: what, number; the answer to this operation
-- ARGV  1 seller  encoded text
--       2 item    encoded text
--       3 price   0: no longer on offer
--       4 most    items that the market knows at most
--       5 keep    milliseconds that the market is kept after its latest change
--       6 replay  milliseconds that the answer to this operation is kept
-- Returns {reason, 0}
--       reason    ok, replayed (done before by the same operation), conflict (it was another operation),
--                 not_owner, full (the item would be one too many)

local funds, items, op = KEYS[1], KEYS[2], KEYS[3]
local seller, item, price, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local keep, replay = ARGV[5], ARGV[6]

local what = 'offer ' .. item .. ' ' .. price
local done = redis.call('HGET', op, 'what')
if done == what then
  return {'replayed', 0}
elseif done then
  return {'conflict', 0}
end
local record = redis.call('HGET', items, item)
if record and string.match(record, '^%S+') ~= seller then
  return {'not_owner', 0}
elseif not record and redis.call('HLEN', items) >= most then
  return {'full', 0}
end

redis.call('HSET', items, item, seller .. ' ' .. price)
redis.call('HSET', op, 'what', what, 'number', 0)
redis.call('PEXPIRE', op, replay)
redis.call('PEXPIRE', funds, keep)
redis.call('PEXPIRE', items, keep)
return {'ok', 0}
