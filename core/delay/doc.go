// Package delay is a queue of tasks that are due later: an unpaid order to cancel in half an hour, a mail to
// send tomorrow, an export to make when there is room.
//
// # Tasks and workers
//
// Most callers make a [Queue] with [New], schedule tasks, and run them with [Work]:
//
//	mails := delay.New(gate, "mails", delay.Options{})
//	created, err := mails.Schedule(ctx, "welcome:ann", time.Now().Add(time.Hour), payload)
//	...
//	err = delay.Work(ctx, mails, send, delay.WorkOptions{})
//
// # At least once
//
// A task is scheduled once per ID. Each claim of a task has a lease, which [Work] renews, and a fence, a
// number that only grows. A task whose lease is over is delivered again. So a task runs at least once, and
// may run twice: when its worker died or stood still, or when its Ack was lost. A handler that writes to a
// database gets exactly once there in two ways. It stores the task's ID in the same transaction, under a
// unique index. Or its statement compares the fence, as in UPDATE … WHERE fence < $1.
//
// A task that kills its process makes no other task dead: see [Queue].
package delay
