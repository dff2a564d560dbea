#!/bin/sh
# Stands in for a coding agent: it reads what it is told and asked, and changes the file that the failure names.
file=$(sed -n 's/^\([a-z.]*\): 2 + 3 gives .*/\1/p')
sed -i.before 's/ - / + /' "$file"
echo "changed $file: it took away what it should add"
