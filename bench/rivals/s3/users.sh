# users.sh: the users of S3 servers that are measured or tested; sourced, not run.
# shellcheck shell=bash
# The keys are public, and the servers listen on 127.0.0.1 while a run lasts.

root_access_key=ROOTAAAAAAAAAAAAAAAA
# shellcheck disable=SC2034 # for the scripts that source this
root_secret_key=root-secret-000000000000000000000000000

# make_users FUNCTION ID: calls FUNCTION NAME ACCESS-KEY SECRET-KEY for each user and writes all of them to users.json of
# `$data`. ID is their canonical id; with `access_key` it is each user's access key.
make_users() {
    local name access_key secret_key id separator='['
    : >"$data/users.json.new"
    for name in main alt tenant; do
        access_key=$(printf '%s' "${name}AAAAAAAAAAAAAAAAAAAA" | tr a-z A-Z | cut -c1-20)
        secret_key=$name-secret-0000000000000000000000000
        "$1" "$name" "$access_key" "$secret_key"
        id=$2
        [ "$id" != access_key ] || id=$access_key
        printf '%s{"id":"%s","display_name":"%s","email":"%s@example.com","access_key":"%s","secret_key":"%s"}' \
            "$separator" "$id" "$name" "$name" "$access_key" "$secret_key" >>"$data/users.json.new"
        separator=,
    done
    echo ']' >>"$data/users.json.new"
    mv "$data/users.json.new" "$data/users.json"
}

# until_answers PROCESS URL LOG: waits until the URL answers with any status; ends the rival if the process ends before.
until_answers() {
    local tenths
    for ((tenths = 0; tenths < 600; tenths++)); do
        curl -s -o /dev/null "$2" 2>/dev/null && break
        kill -0 "$1" 2>/dev/null || { cat "$3" >&2; DATA=$data "$here/stop.sh"; exit 1; }
        sleep 0.1
    done
}
