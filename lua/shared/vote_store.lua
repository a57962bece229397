-- Writes the voter's records back. Needs voters, book, index, rest, voter, mine, slots, count (of records
-- before), kinds (the number of choices that the tally has).

redis.call('HSET', voters, index, rest .. voter .. table.concat(mine, voter))
redis.call('HSET', book, ':slots', slots - count + #mine, ':choices', kinds)
redis.call('HINCRBY', book, ':changes', 1)
