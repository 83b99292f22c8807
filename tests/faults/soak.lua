-- For wrk: sends the lines of a file, one after the other, as bodies of requests; prints what came of it as JSON.

local requests, sent = {}, 0

function init(arguments)
   for line in io.lines(arguments[1]) do
      requests[#requests + 1] = wrk.format("POST", "/predict", { ["Content-Type"] = "application/json" }, line)
   end
end

function request()
   sent = sent + 1
   return requests[sent % #requests + 1]
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '{"requests": %d, "microseconds": %d, "connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d, '
         .. '"p50": %d, "p99": %d, "p999": %d, "longest": %d}\n',
      summary.requests, summary.duration, errors.connect, errors.read, errors.write, errors.status, errors.timeout,
      latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max
   ))
end
