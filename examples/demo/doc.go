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
// The page counts nothing: each number on it comes from the server, in GET /state, or in the events of
// POST /scenarios/NAME, a line of JSON each: {"event": …, "data": …}. A run sends its events while it goes
// on, and ends with "done", or with "failed" and the text {"error": …}. A run is the server's, not a tab's:
// it lasts a minute at most, and goes on when its client leaves. POST starts a run, or joins the one that
// goes on. GET watches the last one. Both send its events from the first one on, and the state has the names
// of the last runs, so all tabs show the same. The first page that sees no attack starts one.
//
//	NAME       events        data
//	attack     counts, done  per limit: the requests that are new, by when they were sent; most admitted in any
//	                         window so far, of those certainly within one (see worstWindow)
//	sale       counts, done  left, held, sold by Redis; orders and counter of the naive sale
//	sale-same  done          the same orders again; their answers are replays
//	room       counts, done  inside, called, waiting, entered by Redis; left, told by the visitors
//	           draw          the seed, and the position that each visitor was told
//	budgets    counts, done  used, most by Redis; what binds, refusals, told by the users
//	poll       counts, done  tallies by Redis; answers to the attacker by status
//	traffic    counts, done  who decided, statuses, the breaker
//	outage     the same, and Redis goes away for the middle third
//	limit      done          the answer to one request, what it means, and the script that ran
//	holds      step, done    left, held, sold while a dead worker's holds run out
//	semaphore  step, done    held, max
//	lock       step, done    fences
//	delay      step, done    the number of the try
//	spend      step, done    tokens left, by the limit
//
// POST /scenarios/room/leave has half of those leave who wait, in the run that goes on. POST
// /scenarios/budgets/raise, pause and all change that of the budgets (on=true, on=false).
//
// POST /redis takes the Redis inside the process away (redis=off) and gives it back (redis=on): its port is
// closed and opened, its data stay. A Redis of REDIS_URL is not the demo's to stop. POST /reset ends all
// runs, deletes all keys of the demo, and starts with a new engine; all tabs load their page again.
//
// # Elements of the page
//
// A scenario's element has the state in data-state: idle, running, done or failed. Its button has the ID
// NAME-run, and its message NAME-status, which is a live region. An element with data-figure shows a number
// of the data: data-figure="sale.left".
//
//	#attack     #attack-naive, #attack-bucket, #attack-sliding: a limit each; #attack-naive-worst and so on:
//	            the number; #attack-naive-result: the sentence
//	#race       #race-run, #race-same; #race-own, #race-naive; #race-answers (tr data-key: the reason)
//	#room       #room-leave; #room-inside-bars, #room-line-bars; #room-seed; #room-check (what this browser
//	            has computed)
//	#budgets    #budgets-raise, -pause, -all (aria-pressed); #budgets-acme, -web, -ann and so on (tr with
//	            data-used, data-hit); #budgets-decided
//	#stuffing   #stuffing-open, #stuffing-capped: a poll each; #stuffing-open-answers, -winner (the sentence)
//	#limit      data-source after a request; #limit-fields, #limit-body, #limit-source; in #limit-calls a div
//	            with data-script for each script that ran
//	#outage     #outage-story, #outage-run; #redis-switch (aria-checked), #redis-state; #outage-limit and
//	            #outage-sale (tr data-key: "redis 200", "local 429"; the status)
//	#holds, #semaphore, #lock, #delay, #spend   an ol with the steps, #NAME-steps; li with data-held, data-max,
//	            data-fence, data-delivery, data-left
//	#hand       the form: #user, #key, #hello, #buy, #export; the figures move by themselves; #answers
//	footer      #reset, #reset-status
//
// # Files
//
//	main.go     the program: address, shutdown
//	welcome.go  the lines that it prints
//	store.go    the Redis, the switch, workers with connections of their own
//	app.go      the guarded app for curl
//	demo.go     routes, sizes, state, reset
//	page.go     the page and its policy; page.html, page.css, page.js
//	runs.go     runs, their events and their buttons
//	attack.go, race.go, room.go, tree.go, poll.go, outage.go, limit.go, workers.go: the scenarios
package main
