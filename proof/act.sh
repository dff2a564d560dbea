# What a step of these tests does: act.sh NAME [SECONDS] says in the journal when it begins and when it ends.
# One that begins while another attempt at the same thing still runs says so: "overlap".
who="$1 $MULLIGAN_RUN_ID $MULLIGAN_STEP ${MULLIGAN_ITEM--}"
what="$who $MULLIGAN_VISIT $MULLIGAN_ATTEMPT $MULLIGAN_FENCE $$ $MULLIGAN_IDEMPOTENCY_KEY"
grep "^start $who " "$JOURNAL" | while read -r _ _ _ _ _ _ _ fence pid _; do
    if grep -qszx "MULLIGAN_FENCE=$fence" "/proc/$pid/environ" && grep -qszxF "STAGE=$STAGE" "/proc/$pid/environ"; then
        echo "overlap $what" >> "$JOURNAL"
    fi
done
echo "start $what" >> "$JOURNAL"
[ -z "$2" ] || sleep "$2"
echo "end $what" >> "$JOURNAL"
