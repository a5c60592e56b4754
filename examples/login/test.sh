#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own. GATEWAY says that this
# node asks the gateway there, which must answer; without it, whoever answers at port 8090 is asked.
. "$(dirname "$0")/../lib.sh"
begin login "${1:-}"

user="ann-$unique"
register() { post /user/register "{\"username\":\"$1\",\"password\":\"$2\"}"; }
login() { http GET /user/login -u "$1:$2"; }
refused() {
    expect_like "$1: 401" 401 '.*'
    expect_header "$1: WWW-Authenticate" '^www-authenticate: *basic realm='
}

register "$user" "pass word:1"; expect "register" 201 "{\"username\":\"$user\"}"
register "$user" "other";       expect "a taken name" 409 '{"error":"the name is taken"}'
login "$user" "pass word:1";    expect "first login" 200 ok
login "$user" "pass word:1";    expect "repeated login" 200 ok
login "$user" "pass word:2";    refused "wrong password"
login "$user" "";               refused "empty password"
login "nobody-$unique" "x";     refused "unknown user"
login "" "x";                   refused "empty name"
login "$user" "other";          refused "the password of the refused registration"

http GET /user/login;                                          refused "no header"
http GET /user/login -H 'Authorization: Bearer abc';           refused "another scheme"
http GET /user/login -H 'Authorization: Basic';                refused "no credentials"
http GET /user/login -H 'Authorization: Basic %%%';            refused "not base64"
http GET /user/login -H 'Authorization: Basic bm8tY29sb24=';   refused "no colon"
encoded=$(printf '%s' "$user:pass word:1" | base64 -w 0)
http GET /user/login -H "authorization: bAsIc $encoded";       expect "scheme in any case" 200 ok

for input in '' '{' 'null' '[]' '{"username":"x"}' '{"username":7,"password":"x"}' '{"username":"","password":"x"}' \
    '{"username":"a:b","password":"x"}' '{"username":"a{b}","password":"x"}' '{"username":"x","password":""}'; do
    post /user/register "$input"
    expect_like "register ${input:-nothing}" 400 '"error":"[^"]+"'
done

register "uni-$unique" "pässwörd✓"; expect "a password beyond ASCII" 201 "{\"username\":\"uni-$unique\"}"
login "uni-$unique" "pässwörd✓";    expect "logs in" 200 ok
login "uni-$unique" "pässwörd✓";    expect "again" 200 ok
login "uni-$unique" "passw0rd";     refused "and no other does"

# SHA-1("password" + "salt"), as another system stored it.
old="old-$unique"
hash=$(printf 'passwordsalt' | sha1sum | cut -d' ' -f1)
call user "$old" import "{\"scheme\":\"sha1\",\"salt\":\"salt\",\"hash\":\"$hash\"}"; expect "import" 200 null
login "$old" password;          expect "an imported user logs in" 200 ok
login "$old" passwords;         refused "an imported user's wrong password"
register "$old" x;              expect "an imported name is taken" 409 '{"error":"the name is taken"}'
for input in '{"scheme":"md5","salt":"","hash":""}' '{"scheme":"sha1","salt":1,"hash":""}' '{"scheme":"sha1","salt":"","hash":"00"}'; do
    call user "$old" import "$input"
    expect_like "import $input" 409 '"aborted"'
done
login "$old" password;          expect "refused imports changed nothing" 200 ok

# A remembered login must not outlive the password it proved.
login "$user" "pass word:1";    expect "remembered" 200 ok
call user "$user" change '{"password":"wrong","to":"x"}'; expect_like "change with a wrong password" 409 '"aborted"'
call user "$user" change '{"password":"pass word:1","to":"second"}'; expect "change the password" 200 null
login "$user" "pass word:1";    refused "the replaced password"
login "$user" second;           expect "the new password" 200 ok
call user "$user" import "{\"scheme\":\"sha1\",\"salt\":\"salt\",\"hash\":\"$hash\"}"; expect "an import replaces" 200 null
login "$user" second;           refused "the password before the import"
login "$user" password;         expect "the imported password" 200 ok

call user "$old" login '{"password":"password"}';  expect "login as a call" 200 '"ok"'
call user "$old" login '{"password":"wrong"}';     expect_like "wrong password as a call" 409 '"aborted"'
call user "uni-$unique" login '{"password":"pässwörd✓"}'; expect "argon2id as a call" 200 '"ok"'
call user "nobody-$unique" login '{"password":"x"}'; expect_like "unknown user as a call" 409 '"aborted"'
mongo() { http GET /user/mongo_login -u "$1:$2"; }
http GET /user/mongo_login;     refused "an outside login without credentials"
if [ -n "${GATEWAY:-}" ] || curl -s -m 2 -o "$work/outside" http://127.0.0.1:8090/healthz; then
    mongo alice "correct horse";    expect "an outside user logs in" 200 ok
    mongo alice "correct horse";    expect "an outside user logs in again" 200 ok
    mongo alice wrong;              refused "an outside user's wrong password"
    mongo "nobody-$unique" x;       refused "somebody the outside database does not know"
else
    mongo alice "correct horse";    expect_like "without the gateway" 502 'fetch-failed'
fi
http POST /user/login;          expect_like "the wrong method" 405 '"method-not-allowed"'
finish
