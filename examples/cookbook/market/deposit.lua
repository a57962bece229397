-- Market: pays money into an account. This is the only way in which money enters a market. A refused attempt
-- writes nothing.
--
-- KEYS  1 funds   hash: user -> money; '=' -> the sum of all accounts
--       2 items   hash: item -> 'owner price', price 0: not on offer
--       3 op      hash: what, number; the answer to this operation
-- ARGV  1 user    encoded text
--       2 amount  1 or more
--       3 most    money that the market has at most, below 2^53
--       4 keep    milliseconds that the market is kept after its latest change
--       5 replay  milliseconds that the answer to this operation is kept
-- Returns {reason, balance}
--       reason    ok, replayed (paid in before by the same operation), conflict (it was another operation),
--                 too_much
--       balance   of the user; 0 after a refusal

local funds, items, op = KEYS[1], KEYS[2], KEYS[3]
local user, amount, most, keep, replay = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

local what = 'deposit ' .. user .. ' ' .. amount
local done = redis.call('HMGET', op, 'what', 'number')
if done[1] == what then
  return {'replayed', tonumber(done[2])}
elseif done[1] then
  return {'conflict', 0}
end
-- The sum is below 2^53, so each account is, and Lua compares them exactly.
local sum = tonumber(redis.call('HGET', funds, '=') or 0)
if tonumber(amount) > most - sum then
  return {'too_much', 0}
end

local balance = redis.call('HINCRBY', funds, user, amount)
redis.call('HINCRBY', funds, '=', amount)
redis.call('HSET', op, 'what', what, 'number', balance)
redis.call('PEXPIRE', op, replay)
redis.call('PEXPIRE', funds, keep)
redis.call('PEXPIRE', items, keep)
return {'ok', balance}
