# Stands in for Claude: reads a prompt, does a little, and says so.
prompt=$(cat)
case "$prompt" in
  */fix-types*) touch typed ;;
  */fix-lint*) touch linted ;;
  */implement*) echo "done" >> work.txt ;;
  */complete*) echo "done" >> work.txt ;;
  */review*) echo "reviewed ${prompt##* }" > "review-${prompt##* }.md" ;;
  */document*) echo "documented" > documented.md && git add -A && git commit -q -m "Document it" ;;
esac
echo "did ${prompt%%
*}"
