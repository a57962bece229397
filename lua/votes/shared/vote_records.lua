-- Refuses a poll whose records are lost.
-- needs: slots, bucket, voters, index
-- returns: yes

if slots > 0 and bucket == '' and redis.call('HEXISTS', voters, index) == 0 then
  return redis.error_reply('GATEHOUSE lost: records of ' .. voters .. ': who has voted is unknown')
end
