-- Splits a stored answer. form is its first byte; head, what comes before the calls; words, the rest: calls,
-- those that received a yes, and marks, those that were taken back.
-- needs: stored
-- gives: form, head, words, calls, marks

local form = string.sub(stored, 1, 1)
local length = form == '|' and 1 or form == 'c' and 13 or 9
local head, words = string.sub(stored, 1, length), string.sub(stored, length + 1)
local calls, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
