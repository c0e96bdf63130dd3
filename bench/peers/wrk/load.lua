-- The load of one measurement. Arguments of wrk after `--`: the API key and one of
--   list PATH                 the same GET for each request
--   list-apart PATH           the same page for each request, under a URL of its own
--   get FIRST LAST            GET of a random id
--   create FILE CODE          POST of the body in a file, with consecutive codes from CODE on
--   submit FIRST              submit invoices with consecutive ids from FIRST on
--   get-any FILE, create-any FILE BODY CODE
--                             the same for random companies; each line of FILE: key, first, last id
-- Prints one line of JSON at the end.

local CODE = '"code": 0'
local requests = {}

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function head(method, path, key)
  return method .. " " .. path .. " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
      .. "\r\nX-API-Key: " .. key .. "\r\n"
end

local function number(value)
  return string.format("%.0f", value)
end

-- Returns a function that puts a code into the body. All codes have the same length.
local function body_of(path, code)
  local text = read(path)
  local first, last = text:find(CODE, 1, true)
  local before, after = text:sub(1, first - 1) .. '"code": ', text:sub(last + 1)
  local length = #before + #number(code) + #after
  local start = "Content-Type: application/json\r\nContent-Length: " .. length .. "\r\n\r\n" .. before
  return function(value)
    return start .. number(value) .. after
  end
end

local function companies(path)
  local found = {}
  for key, first, last in read(path):gmatch("(%S+) (%d+) (%d+)") do
    found[#found + 1] = { key = key, first = tonumber(first), last = tonumber(last) }
  end
  return found
end

function requests.list(key, path)
  local text = head("GET", path, key) .. "\r\n"
  return function() return text end
end

-- Encodes random letters of the names in the query, which no server may tell from the letters.
requests["list-apart"] = function(key, path)
  local place, query = path:match("^(.-%?)(.*)$")
  local before, after = head("GET", place .. "\0", key):match("^(.-)%z(.*)$")
  local function encode(letter)
    return math.random(2) == 1 and letter or string.format("%%%02X", letter:byte())
  end
  return function()
    return before .. query:gsub("[a-z_]+=", function(name) return name:gsub("[a-z]", encode) end)
        .. after .. "\r\n"
  end
end

function requests.get(key, first, last)
  local before, after = head("GET", "/api/invoices/\0", key):match("^(.-)%z(.*)$")
  first, last = tonumber(first), tonumber(last)
  return function()
    return before .. number(math.random(first, last)) .. after .. "\r\n"
  end
end

function requests.create(key, path, code)
  local start, next_code = head("POST", "/api/invoices", key), tonumber(code)
  local body = body_of(path, next_code)
  return function()
    next_code = next_code + 1
    return start .. body(next_code)
  end
end

function requests.submit(key, first)
  local next_id = tonumber(first) - 1
  return function()
    next_id = next_id + 1
    return head("POST", "/api/invoices/" .. number(next_id) .. "/submit-to-portal", key)
        .. "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
  end
end

requests["get-any"] = function(_, path)
  local found = companies(path)
  return function()
    local company = found[math.random(#found)]
    local id = number(math.random(company.first, company.last))
    return head("GET", "/api/invoices/" .. id, company.key) .. "\r\n"
  end
end

requests["create-any"] = function(_, path, body_path, code)
  local found, next_code = companies(path), tonumber(code)
  local body = body_of(body_path, next_code)
  return function()
    next_code = next_code + 1
    return head("POST", "/api/invoices", found[math.random(#found)].key) .. body(next_code)
  end
end

function init(args)
  math.randomseed(os.time())
  request = requests[args[2]](args[1], args[3], args[4], args[5])
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %.6f, "p50": %.3f, "p99": %.3f, "statuses": %d, '
      .. '"sockets": %d, "timeouts": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1000,
    latency:percentile(99) / 1000, errors.status, errors.connect + errors.read + errors.write,
    errors.timeout))
end
