#!/bin/sh
echo "taken back"
