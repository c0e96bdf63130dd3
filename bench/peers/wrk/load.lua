-- The load of one measurement. Arguments of wrk after `--`: a file that has the company of each request
-- as a line, its key and the first and the last id of its invoices, and one of
--   list PATH          a page of a list
--   get                GET of a random invoice of the company
--   create FILE CODE   POST of the body in a file, with consecutive codes from CODE on
--   submit             submit the first invoice of a line
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

-- Returns a function that returns the company of the next line of a file. After the last line it
-- starts again. `prepare` is called once for each distinct line.
local function by_line(path, prepare)
  local found, known, place = {}, {}, 0
  for line, key, first, last in read(path):gmatch("((%S+) (%d+) (%d+))") do
    if not known[line] then
      known[line] = { key = key, first = tonumber(first), last = tonumber(last) }
      prepare(known[line])
    end
    found[#found + 1] = known[line]
  end
  return function()
    place = place % #found + 1
    return found[place]
  end
end

function requests.list(file, path)
  local next_company = by_line(file, function(company)
    company.text = head("GET", path, company.key) .. "\r\n"
  end)
  return function() return next_company().text end
end

function requests.get(file)
  local next_company = by_line(file, function(company)
    company.before, company.after = head("GET", "/api/invoices/\0", company.key):match("^(.-)%z(.*)$")
  end)
  return function()
    local company = next_company()
    return company.before .. number(math.random(company.first, company.last)) .. company.after .. "\r\n"
  end
end

function requests.create(file, path, code)
  local next_code = tonumber(code)
  local body = body_of(path, next_code)
  local next_company = by_line(file, function(company)
    company.start = head("POST", "/api/invoices", company.key)
  end)
  return function()
    next_code = next_code + 1
    return next_company().start .. body(next_code)
  end
end

function requests.submit(file)
  local next_company = by_line(file, function(company)
    company.text = head("POST", "/api/invoices/" .. number(company.first) .. "/submit-to-portal", company.key)
        .. "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
  end)
  return function() return next_company().text end
end

function init(args)
  math.randomseed(os.time())
  request = requests[args[2]](args[1], args[3], args[4])
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
