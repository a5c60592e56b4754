-- GET /users?username=eq.NAME → a JSON array of the users of that name, none or one, in the manner
-- of PostgREST. GET /healthz asks the database too. Nothing else is served.
--
-- The interpreter of each server thread keeps these globals, so each thread has one connection with
-- the query prepared.

local DBI = require("DBI")
local QUERY = "SELECT coalesce(json_agg(u), '[]')::text FROM users AS u WHERE username = $1"

connection = nil
statement = nil

local function disconnect()
    if connection then pcall(connection.close, connection) end
    connection, statement = nil, nil
end

-- The JSON array of users of a name; raises what goes wrong.
local function find(name)
    if not statement then
        connection = assert(DBI.Connect("PostgreSQL", "postgres", "gateway", nil, os.getenv("GATEWAY_SOCKETS")))
        connection:autocommit(true)
        statement = assert(connection:prepare(QUERY))
    end
    assert(statement:execute(name))
    return assert(statement:fetch(false), "no row")[1]
end

-- As find; a connection that broke while nobody used it, as when the database was started anew,
-- is opened again once.
local function users(name)
    local was_open = statement ~= nil
    local is_found, result = pcall(find, name)
    if is_found then return result end
    disconnect()
    if was_open then
        is_found, result = pcall(find, name)
        if is_found then return result end
        disconnect()
    end
    return nil, result
end

local function answer(r, status, content_type, body)
    r.status = status
    r.content_type = content_type
    r:puts(body)
    return apache2.OK
end

local function problem(r, status, message)
    return answer(r, status, "application/json", '{"message":"' .. message .. '"}\n')
end

function handle(r)
    if r.method ~= "GET" then return problem(r, 405, "only GET is served") end
    local name
    if r.uri == "/users" then
        local value = r:parseargs().username
        name = type(value) == "string" and value:match("^eq%.(.+)$")
        -- httpd ends an argument at a NUL, which would find another user; PostgreSQL holds UTF-8 only.
        if not name or not utf8.len(name) or r.args:find("%00", 1, true) then return problem(r, 400, "the query must be username=eq.NAME") end
    elseif r.uri == "/healthz" then
        name = "-"
    else
        return problem(r, 404, "only /users is served")
    end
    local found, err = users(name)
    if not found then
        r:err("the database: " .. tostring(err))
        return problem(r, 503, "the database does not answer")
    end
    if r.uri == "/healthz" then return answer(r, 200, "text/plain", "ok") end
    return answer(r, 200, "application/json", found)
end
