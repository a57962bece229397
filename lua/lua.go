// Package lua holds the scripts that decide, one plain file each. The header of a file states its purpose,
// KEYS, ARGV and replies. A file runs unchanged with redis-cli --eval, and step by step with --ldb. The
// scripts use base Lua and redis.call only, touch no key but those in KEYS, and read the server's clock
// unless the caller passes a moment. Blocks that several scripts share stand in each of them between "--
// shared NAME" and "-- end NAME"; their source is shared/NAME.lua, and go generate writes them into the
// scripts. docs/scripts.md describes the conventions that all scripts follow.
//
// Most programs use the guards in the packages below core, which run these scripts.
package lua

//go:generate go run ./internal/shared/generate

import _ "embed"

// The scripts, named after their files.
var (
	//go:embed sliding_window.lua
	SlidingWindow string
	//go:embed sliding_windows.lua
	SlidingWindows string
	//go:embed sliding_parts.lua
	SlidingParts string
	//go:embed sliding_log.lua
	SlidingLog string
	//go:embed sliding_settle.lua
	SlidingSettle string
	//go:embed fixed_window.lua
	FixedWindow string
	//go:embed fixed_window_settle.lua
	FixedWindowSettle string
	//go:embed token_bucket.lua
	TokenBucket string
	//go:embed token_buckets.lua
	TokenBuckets string
	//go:embed token_bucket_settle.lua
	TokenBucketSettle string
	//go:embed delete.lua
	Delete string

	//go:embed ban.lua
	Ban string

	//go:embed vote.lua
	Vote string
	//go:embed vote_joined.lua
	VoteJoined string
	//go:embed vote_keep.lua
	VoteKeep string
	//go:embed vote_undo.lua
	VoteUndo string
	//go:embed vote_retract.lua
	VoteRetract string
	//go:embed vote_void.lua
	VoteVoid string
	//go:embed vote_spread.lua
	VoteSpread string
	//go:embed vote_part.lua
	VotePart string
	//go:embed vote_tally.lua
	VoteTally string
	//go:embed vote_repair.lua
	VoteRepair string

	//go:embed idempotency_begin.lua
	IdempotencyBegin string
	//go:embed idempotency_finish.lua
	IdempotencyFinish string
	//go:embed idempotency_release.lua
	IdempotencyRelease string

	//go:embed quota.lua
	Quota string
	//go:embed quota_undo.lua
	QuotaUndo string
	//go:embed quota_used.lua
	QuotaUsed string

	//go:embed seckill_open.lua
	SeckillOpen string
	//go:embed seckill_reserve.lua
	SeckillReserve string
	//go:embed seckill_reserve_joined.lua
	SeckillReserveJoined string
	//go:embed seckill_confirm.lua
	SeckillConfirm string
	//go:embed seckill_cancel.lua
	SeckillCancel string
	//go:embed seckill_sweep.lua
	SeckillSweep string
	//go:embed seckill_repair.lua
	SeckillRepair string
	//go:embed seckill_restock.lua
	SeckillRestock string
	//go:embed seckill_close.lua
	SeckillClose string
	//go:embed seckill_begin.lua
	SeckillBegin string
	//go:embed seckill_root.lua
	SeckillRoot string
	//go:embed seckill_lend.lua
	SeckillLend string
	//go:embed seckill_accept.lua
	SeckillAccept string
	//go:embed seckill_finish.lua
	SeckillFinish string
	//go:embed seckill_find.lua
	SeckillFind string
	//go:embed seckill_keep.lua
	SeckillKeep string

	//go:embed red_packet_create.lua
	RedPacketCreate string
	//go:embed red_packet_grab.lua
	RedPacketGrab string
	//go:embed red_packet_refund.lua
	RedPacketRefund string
	//go:embed red_packet_audit.lua
	RedPacketAudit string

	//go:embed semaphore_acquire.lua
	SemaphoreAcquire string
	//go:embed semaphore_wait.lua
	SemaphoreWait string
	//go:embed semaphore_release.lua
	SemaphoreRelease string
	//go:embed semaphore_renew.lua
	SemaphoreRenew string
	//go:embed semaphore_evict.lua
	SemaphoreEvict string
	//go:embed semaphore_peek.lua
	SemaphorePeek string

	//go:embed lock_acquire.lua
	LockAcquire string
	//go:embed lock_wait.lua
	LockWait string
	//go:embed lock_release.lua
	LockRelease string
	//go:embed lock_renew.lua
	LockRenew string
	//go:embed lock_break.lua
	LockBreak string
	//go:embed lock_peek.lua
	LockPeek string
	//go:embed delay_schedule.lua
	DelaySchedule string
	//go:embed delay_claim.lua
	DelayClaim string
	//go:embed delay_extend.lua
	DelayExtend string
	//go:embed delay_ack.lua
	DelayAck string
	//go:embed delay_nack.lua
	DelayNack string
	//go:embed delay_release.lua
	DelayRelease string
	//go:embed delay_remove.lua
	DelayRemove string
	//go:embed delay_move.lua
	DelayMove string
	//go:embed delay_find.lua
	DelayFind string
	//go:embed delay_peek.lua
	DelayPeek string

	//go:embed touch.lua
	Touch string
)
