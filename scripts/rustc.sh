#!/usr/bin/env bash
# rustc.sh RUSTC ARGUMENT…: what cargo calls in place of rustc for the workspace's own crates (.cargo/config.toml).
#
# It compiles test programs with less optimization, and everything else as cargo says. Cargo has no profile for that:
# `cargo test --release` shares the optimized libraries with `cargo build --release`, but its profile counts for the tests,
# too. On two cores all tests compile in 167 s instead of 425, and run as fast. With level 0 they compile in 107 s, but run
# 140 s longer. Without the tables of lines, which only a backtrace shows, another fifth goes.
# In bash, because sh loses variables with a hyphen in their name (CARGO_BIN_EXE_millrace-history).
for argument; do
    if [ "$argument" = --test ]; then
        exec "$@" -C opt-level=1 -C codegen-units=16 -C debuginfo=0 -C strip=debuginfo
    fi
done
exec "$@"
