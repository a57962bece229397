-- Asks gatehouse serve about each request, for HAProxy from 2.5 on: docs/guides/gateway.md.

local not_asked = {["content-length"] = true, ["transfer-encoding"] = true, ["connection"] = true, ["expect"] = true,
  ["upgrade"] = true, ["x-original-method"] = true, ["x-original-uri"] = true}

core.register_action("gatehouse", {"http-req"}, function(txn)
  local fields = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not not_asked[name] then
      fields[name] = {}
      for i = 0, #values do
        table.insert(fields[name], values[i])
      end
    end
  end
  fields["x-original-method"] = {txn.sf:method()}
  fields["x-original-uri"] = {txn.sf:pathq()}
  fields["x-forwarded-for"] = fields["x-forwarded-for"] or {}
  table.insert(fields["x-forwarded-for"], txn.sf:src())

  local answer = core.httpclient():get{url = "http://gatehouse/check", dst = "unix@/run/gatehouse.sock",
    headers = fields, timeout = 1000}
  local function first(name)
    return answer.headers and answer.headers[name] and answer.headers[name][0]
  end
  if answer.status == 204 and not first("gatehouse-status") then
    for name, variable in pairs{["ratelimit"] = "txn.ratelimit", ["ratelimit-policy"] = "txn.ratelimit_policy",
      ["set-cookie"] = "txn.cookie"} do
      if first(name) then
        txn:set_var(variable, first(name))
      end
    end
    return
  end
  local status = tonumber(first("gatehouse-status"))
  if not status and answer.status and answer.status >= 400 and answer.status < 500 then
    status = answer.status -- the gateway cannot read the request
  end
  -- if not status then return end -- for requests to pass while the gateway does not answer
  local reply = txn:reply{status = status or 503}
  if status then
    for name, values in pairs(answer.headers) do
      if name ~= "gatehouse-status" and name ~= "content-length" and name ~= "connection" then
        for i = 0, #values do
          reply:add_header(name, values[i])
        end
      end
    end
    reply:set_body(answer.body or "")
  end
  txn:done(reply)
end)
