// Command demo lets you try Gatehouse. It serves one page, on which you attack three limits, race for
// tickets, fill a waiting room, flood an organisation's budgets, stuff a poll, take Redis away, and kill
// workers; and a guarded app for curl: a limit of 100 requests per minute, a poll in which each user votes
// once, and a flash sale (seckill) of 100 tickets, one per buyer.
//
//	go run ./examples/demo
//
// It needs nothing else: a Redis runs inside the process. REDIS_URL=redis://127.0.0.1:6379 selects another
// one, and ADDR=127.0.0.1:0 listens on a free port. The first line of its output has the URL.
//
// # What the server measures
//
// The page counts nothing: each number on it comes from the server, in the answer to POST /limit, or in the
// server-sent events of POST /scenarios/NAME and GET /state. A run sends its events while it goes on, and
// ends with "done", or with "failed" and the text {"error": …}. A run is the server's, not a tab's: it lasts
// a minute at most, and goes on when its client leaves. POST starts a run, or joins the one that goes on. GET
// watches the last one. Both send its events from the first one on, and the state has the numbers of the last
// runs, so all tabs show the same. The first page that sees no attack starts one.
//
//	NAME       events: data               numbers
//	attack     begin, dots, done          when each request was sent; most admitted in any window (so far), of
//	                                      those certainly within one (see worstWindow)
//	sale       counts, done: raceCounts   left, held, sold by Redis; orders and counter of the naive sale
//	sale-same  done: raceCounts           the same orders again; their answers are replays
//	room       counts, done: roomCounts  inside, called, waiting, entered by Redis; left, told by the visitors;
//	           draw: roomDraw            the seed, and the position that each visitor was told
//	budgets    counts, done: treeCounts  used, most by Redis; what binds, refusals, told by the users
//	holds      step, done: holdsStep      left, held, sold while a dead worker's holds run out
//	poll       counts, done: pollCounts   tallies by Redis; answers to the attacker by status
//	semaphore  step, done: step           held, max
//	lock       step, done: step           fences
//	delay      step, done: step           the number of the try
//	spend      step, done: step           tokens left, by the limit
//	traffic    counts, done: trafficCounts  who decided, statuses, the breaker
//	outage     the same, and Redis goes away for the middle third
//
// POST /room/leave has half of those leave who wait, in the run that goes on. POST /budgets/raise, /pause and
// /all change that of the budgets (on=true, on=false).
//
// POST /redis takes the Redis inside the process away (redis=off) and gives it back (redis=on): its port is
// closed and opened, its data stay. A Redis of REDIS_URL is not the demo's to stop. POST /reset ends all
// runs, deletes all keys of the demo, and starts with a new engine.
//
// # Elements of the page
//
// A scenario's element has the state in data-state: idle, running, done or failed. Its button has the ID
// NAME-run, and its message NAME-status, which is a live region.
//
//	#attack     #attack-naive, #attack-bucket, #attack-sliding: data-worst and data-limit after a run;
//	            #attack-naive-worst and so on: the number; #attack-naive-result: the sentence
//	#race       #race-run, #race-same; #race-left, -held, -sold, -total; #race-answers (tr data-key: the
//	            reason); #race-naive-left, -sold, -oversold, -refused; #race-own-grid, #race-naive-grid
//	#room       #room-leave; #room-inside, -called, -most, -entered, -waiting, -left, -told; #room-inside-bars,
//	            #room-line-bars; #room-commitment, -seed; #room-check (what this browser has computed)
//	#budgets    #budgets-raise, -pause, -all (aria-pressed); #budgets-acme, -web, -ann and so on (tr with
//	            data-used, data-hit); #budgets-others, -allowed, -refused; #budgets-decided, -answer
//	#holds      #holds-left, -held, -sold, -ms
//	#stuffing   #stuffing-open-red, -blue, -refused, -answers, -winner (the sentence);
//	            #stuffing-capped-red and so on
//	#limit      data-source after a request; #limit-fields, #limit-body, #limit-source; in #limit-calls a div
//	            with data-script for each script that ran
//	#outage     #outage-story, #outage-run; #redis-switch (aria-checked), #redis-state; #outage-alone;
//	            #breaker-state, -ms;
//	            #outage-limit and #outage-sale (tr data-key: "redis 200", "local 429"; the status)
//	#semaphore, #lock, #delay, #spend   an ol with the steps, #NAME-steps; li with data-held, data-max,
//	            data-fence, data-try, data-left
//	#hand       the form: #user, #key, #hello, #buy, #export; #tally-red, -blue, -green, #sale-left, -held,
//	            -sold, #exports-running, which move by themselves; #answers
//	footer      #reset, #reset-status; a reset makes all scenarios idle again
//
// # Files
//
//	main.go     the program: address, shutdown
//	welcome.go  the lines that it prints
//	store.go    the Redis, the switch, workers with connections of their own
//	app.go      the guarded app for curl
//	demo.go     routes, sizes, runs, reset
//	page.go     the page and its policy; page.html, page.css, page.js
//	stream.go   server-sent events, and the tapes of runs
//	watch.go    the breaker, who decided, which scripts ran
//	labs.go     the guards of the scenarios
//	attack.go, race.go, room.go, tree.go, holds.go, poll.go, limit.go, workers.go, spend.go, outage.go: the
//	scenarios
package main
