#!/usr/bin/env bash
# Build the vendored CodeMirror of the dashboard from the packages that package-lock.json pins. Needs Node.js and npm.
# The package of Mulligan contains what this writes, not this folder.
set -euo pipefail
cd "$(dirname "$0")"
out=../../src/mulligan/dashboard/assets/vendor
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
node_modules/.bin/esbuild codemirror.js --bundle --minify --format=esm --target=es2022 --legal-comments=none \
  --outfile="$out/codemirror.js"
{
  echo "codemirror.js is made of these packages, by tools/codemirror/build.sh."
  for license in node_modules/*/LICENSE node_modules/@*/*/LICENSE; do
    folder=$(dirname "$license")
    printf '\n==== %s %s\n\n' "${folder#node_modules/}" "$(node -p "require('./$folder/package.json').version")"
    cat "$license"
  done
} > "$out/codemirror.LICENSES.txt"
rm -rf node_modules
wc -c "$out/codemirror.js"
