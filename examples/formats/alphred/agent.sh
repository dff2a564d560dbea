#!/bin/sh
# Replaces a coding agent. Its work goes into the file `work`, its prompt into `prompt-NODE`.
cat > "prompt-$MULLIGAN_STEP"
if [ -n "$MULLIGAN_ERROR_CODE" ]; then
    # Asked before a retry, by its error handler: what went wrong, in a word.
    echo "$MULLIGAN_STEP: summed up${MULLIGAN_MODEL:+ by $MULLIGAN_MODEL}" >> work
    echo "Use the other door."
    exit
fi
echo "$MULLIGAN_STEP${MULLIGAN_ITEM:+ $MULLIGAN_ITEM}" >> work
case $MULLIGAN_STEP in
review | judge)
    # Asks for changes once, as reviewers do.
    case $MULLIGAN_VISIT in
    1) printf 'Not yet.\ndecision: changes_requested\n' ;;
    *) printf 'Well done.\nresult.metadata.routingDecision: approved\n' ;;
    esac
    ;;
score) echo '{"score": 91.5, "decision": "approved"}' ;;
stuck) printf 'There is no way in.\ndecision: blocked\n' ;;
split)
    cat <<'ANSWER'
```json
{"schemaVersion": 1, "subtasks": [
  {"nodeKey": "docs", "title": "Docs", "prompt": "Write the docs."},
  {"title": "Tests", "prompt": "Write the tests.", "model": "small", "metadata": {"size": 2}}
]}
```
ANSWER
    ;;
flaky)
    grep -q "Use the other door" prompt-flaky || { echo "the door is locked" >&2; exit 1; }
    echo "went in by the other door"
    ;;
tests) [ -e fixed ] || { echo "2 tests fail" >&2; exit 1; }; echo "all tests pass" ;;
fix) grep -q "2 tests fail" prompt-fix && touch fixed; echo "fixed" ;;
deploy | rollback) echo "$MULLIGAN_STEP: no connection" >&2; exit 1 ;;
*) echo "$MULLIGAN_STEP is done" ;;
esac
