-- Stores the voter's records, and the state of the book. count is the number of records before; slot the record
-- that was at place.
-- needs: voters, index, bucket, at, voter, mine, stop, book, slots, count, changes, buckets, ballots
-- needs: kinds, ended, place, slot

if place == count and string.sub(mine[#mine] or '', 4) ~= string.sub(slot, 4) then
  mine[#mine + 1] = '\0\0\0' .. string.sub(slot, 4) -- the last turn is kept: no later vote may reuse it
end
redis.call('HSET', voters, index,
  string.sub(bucket, 1, at - 1) .. voter .. table.concat(mine, voter) .. string.sub(bucket, stop))
redis.call('HSET', book, ':state', string.format('%.0f %.0f %.0f %.0f %.0f %.0f', slots - count + #mine,
  changes + 1, buckets, ballots, kinds, ended))
