# What a step of these runs does: says that it began, takes its time ($s), says that it ended, and prints its lease.
echo "start $MULLIGAN_RUN_ID $MULLIGAN_IDEMPOTENCY_KEY $MULLIGAN_FENCE" >> "$JOURNAL"
[ -z "${s:-}" ] || sleep "$s"
echo "end $MULLIGAN_RUN_ID $MULLIGAN_IDEMPOTENCY_KEY $MULLIGAN_FENCE" >> "$JOURNAL"
echo "$MULLIGAN_FENCE"
