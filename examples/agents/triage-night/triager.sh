# Stands in for a model: it reads what a triager is given, and answers in the same form.
case $(cat "$MULLIGAN_CONTEXT_FILE") in
  *"does not exist"*) echo '{"verdict": "fail", "confidence": 0.97, "reason": "a column is missing, which no retry brings"}' ;;
  *"end of file"*) echo '{"verdict": "retry", "confidence": 0.5, "reason": "the file is cut off, perhaps still being written"}' ;;
  *) echo '{"verdict": "retry", "confidence": 0.95, "reason": "the mirror closed the connection", "rule": "{pattern: connection reset, max_retries: 3, delay: 1m}"}' ;;
esac
