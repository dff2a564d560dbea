#!/bin/sh
# Stands in for a coding agent: it does what the prompt asks for, with what the context says.
read -r command package rest < "$MULLIGAN_PROMPT_FILE"
if [ "$command" = /fix ]; then
    touch "${package%:}.mended"
else
    touch "$(sed -n 's/^there is no //p')"
fi
echo done
