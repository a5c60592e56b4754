#!/usr/bin/env bash
# check-types.sh: writes millrace.d.ts below the target directory and checks the examples and the app of sdk/node against it.
set -euo pipefail

cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
types=$target/types
PATH=$target/tools/node_modules/.bin:$PATH

mkdir -p "$types"
# The command writes the file where it is run, or to its standard output.
(cd "$types" && rm -f millrace.d.ts && "$target/release/millrace" types >printed)
[ -s "$types/millrace.d.ts" ] || mv "$types/printed" "$types/millrace.d.ts"

# One program an app: apps do not see each other's files, and may define the same names.
for app in examples/*/ sdk/node/parity/; do
    mapfile -t sources < <(find "$app" -name '*.ts' -not -name '*.d.ts' | sort)
    [ "${#sources[@]}" = 0 ] && continue
    tsc --noEmit --strict --target es2022 --lib es2022 --types '' --module esnext --moduleResolution bundler \
        --resolveJsonModule --allowImportingTsExtensions "$types/millrace.d.ts" "${sources[@]}" ||
        { echo "$app does not agree with $types/millrace.d.ts" >&2; exit 1; }
done
