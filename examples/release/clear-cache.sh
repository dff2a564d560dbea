#!/bin/sh
rm -rf cache
