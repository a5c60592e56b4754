#!/usr/bin/env bash
# install-missing.sh build|test|fuzz|helm|browser: makes sure that the programs a task needs are there.
#
# Looks first and installs only what is absent, so it needs neither network nor rights on a
# machine that has everything. Packages come from apt, as root or through sudo; npm and cargo
# packages go below the target directory and the user's cargo home.
set -euo pipefail

cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-target}/tools
typescript=7.0.2
helm=v3.18.6

have() { command -v "$1" >/dev/null 2>&1; }

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# apt_install PROGRAM PACKAGE...: installs packages because PROGRAM is missing.
apt_install() {
    local program=$1 sudo=() log
    shift
    have apt-get || fail "$program is missing, and so is apt-get: install $* by this system's own means."
    if [ "$(id -u)" != 0 ]; then
        have sudo || fail "$program is missing. Run as root: apt-get install $*"
        sudo=(sudo)
    fi
    echo "installing $* ($program is missing)"
    log=$(mktemp)
    # The package lists may be absent or old; they are fetched only if that is what is wrong.
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 ||
        { "${sudo[@]}" apt-get update >>"$log" 2>&1 &&
            "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1; } ||
        { tail -20 "$log" >&2; rm -f "$log"; fail "could not install $*"; }
    rm -f "$log"
}

need_rust() {
    local wanted
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    have cargo || fail "cargo is missing. Install Rust with rustup, which reads rust-toolchain.toml:" \
        "    https://rustup.rs" \
        "then open a new shell, or: . \"\$HOME/.cargo/env\""
    # Asking for the version makes rustup fetch the pinned toolchain.
    [[ $(cargo --version) == "cargo $wanted "* ]] ||
        fail "$(cargo --version) is not the pinned toolchain, $wanted. Install rustup (https://rustup.rs), which picks it by itself."
}

# QuickJS and the TLS library hold C, which needs a compiler, the libc's headers and a linker.
need_c_compiler() {
    echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c -include stdlib.h -o /dev/null - 2>/dev/null ||
        apt_install "a working C compiler" gcc libc6-dev
}

need_typescript() {
    [ "$("$tools/node_modules/.bin/tsc" --version 2>/dev/null)" = "Version $typescript" ] && return
    # A compiler that the user has is as good; another version may only warn differently.
    have tsc && return
    have node || apt_install node nodejs npm
    have npm || apt_install npm npm
    mkdir -p "$tools"
    npm install --silent --no-audit --no-fund --no-save --prefix "$tools" "typescript@$typescript" ||
        fail "could not install typescript $typescript from npm, and there is no tsc"
}

# For clients that others wrote. Where it cannot be had, scripts/check-clients.sh says what that means.
need_python() {
    python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && return
    (apt_install "python3 with venv" python3 python3-venv) || echo "going on without python3" >&2
}

need_cargo_fuzz() {
    cargo +nightly --version >/dev/null 2>&1 || {
        have rustup || fail "fuzzing needs a nightly toolchain, which rustup installs: https://rustup.rs"
        rustup toolchain install nightly --profile minimal
    }
    cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
    have c++ || apt_install "a C++ compiler" g++
}

# Built from its source, which takes some minutes: only `make helm-check` needs it.
need_helm() {
    have go || fail "go is missing, which also reads the manifests as types of Kubernetes: https://go.dev/dl"
    { have helm || [ -x "$tools/helm" ]; } && return
    echo "installing helm $helm"
    mkdir -p "$tools"
    GOBIN=$(realpath "$tools") go install "helm.sh/helm/v3/cmd/helm@$helm" || fail "could not build helm $helm"
}

case ${1:-} in
build)
    need_rust
    need_c_compiler
    ;;
test)
    need_rust
    need_c_compiler
    have git || apt_install git git
    have curl || apt_install curl curl ca-certificates
    # What tests of the built binary run: see has_programs in tests/src/needs.rs.
    have make || apt_install make make
    have cc || apt_install cc gcc libc6-dev
    have openssl || apt_install openssl openssl
    # scripts/processes.sh looks whether a process has ended.
    have ps || apt_install ps procps
    { have unshare && have nsenter; } || apt_install unshare util-linux
    need_typescript
    need_python
    ;;
fuzz)
    need_rust
    need_c_compiler
    need_cargo_fuzz
    ;;
helm) need_helm ;;
browser)
    { have python3 && python3 -c 'import venv'; } || apt_install "python3 with venv" python3 python3-venv
    { have chromium && have chromedriver; } || apt_install chromium chromium chromium-driver
    ;;
*) fail "usage: $0 build|test|fuzz|helm|browser" ;;
esac
