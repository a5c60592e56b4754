# Shared by scripts that run checks in steps; sourced, not run.

# step NAME COMMAND…: runs a command, tells how long it took, and ends the script where it fails.
step() {
    local name=$1 started=$SECONDS
    shift
    echo "== $name"
    "$@" || {
        echo "== $name failed after $((SECONDS - started)) s" >&2
        exit 1
    }
    echo "== $name: $((SECONDS - started)) s"
}

# Each step names its target and not its package: cargo then builds it with the features of the whole workspace, as
# `cargo test --workspace` does, and no dependency is compiled twice.
tidy() { cargo run --quiet --release --locked --bin xtask -- tidy; }
clippy() { cargo clippy --quiet --release --locked --workspace --all-targets -- -D warnings; }
black_box() { cargo test --quiet --release --locked --workspace --test black_box -- "$@"; }
