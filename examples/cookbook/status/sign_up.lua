-- Status: creates the profile of a user. A profile that exists keeps its count.
--
-- KEYS  1 profile  hash: posts, the number of messages that the user has posted
-- ARGV  1 keep     milliseconds that the profile is kept
-- Returns 1 when the profile is new, else 0.

local profile, keep = KEYS[1], ARGV[1]

local new = redis.call('HSETNX', profile, 'posts', 0)
redis.call('PEXPIRE', profile, keep)
return new
