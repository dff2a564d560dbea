#!/bin/sh
# Replaces a coding agent: it reads its prompt, and changes the file that the failure names.
file=$(sed -n 's/^\([a-z.]*\): 2 + 3 gives .*/\1/p')
sed -i.before 's/ - / + /' "$file"
echo "changed $file: it took away what it should add"
