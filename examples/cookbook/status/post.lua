-- Status: posts a message and counts it. A refused attempt writes nothing.
--
-- KEYS  1 profile  hash, as sign_up writes it
--       2 feed     stream of the newest messages: the field text; Redis makes the IDs
--       3 op       hash: what, id, posts; the answer to this operation
-- ARGV  1 text     the message
--       2 what     encoded text that identifies the message
--       3 most     messages that the feed keeps
--       4 keep     milliseconds that profile and feed are kept after the latest message
--       5 replay   milliseconds that the answer to this operation is kept
-- Returns {reason, id, posts}
--       reason     ok, replayed (posted before by the same operation), conflict (the operation posted another
--                  message), unknown (no such user)
--       id         of the message in the feed
--       posts      of the user, after this message

local profile, feed, op = KEYS[1], KEYS[2], KEYS[3]
local text, what, most, keep, replay = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local done = redis.call('HMGET', op, 'what', 'id', 'posts')
if done[1] == what then
  return {'replayed', done[2], tonumber(done[3])}
elseif done[1] then
  return {'conflict', '', 0}
elseif redis.call('EXISTS', profile) == 0 then
  return {'unknown', '', 0}
end

local id = redis.call('XADD', feed, 'MAXLEN', most, '*', 'text', text)
local posts = redis.call('HINCRBY', profile, 'posts', 1)
redis.call('HSET', op, 'what', what, 'id', id, 'posts', posts)
redis.call('PEXPIRE', op, replay)
redis.call('PEXPIRE', feed, keep)
redis.call('PEXPIRE', profile, keep)
return {'ok', id, posts}
