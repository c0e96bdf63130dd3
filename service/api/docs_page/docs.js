// Renders /api/openapi.json. Text is inserted as text, never as markup.
"use strict";

const METHODS = ["get", "post", "put", "delete", "patch"];
const DEEPEST = 6;
const LONGEST_PATTERN = 60;
let api;

/** Create an element with a class, and children that are elements or text. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(
    ...children.filter((child) => child !== null && child !== undefined && child !== ""),
  );
  return element;
}

/** Return the part of the description that a reference names. */
function found(reference) {
  return reference
    .slice(2)
    .split("/")
    .reduce((part, name) => part[name.replaceAll("~1", "/").replaceAll("~0", "~")], api);
}

function resolved(part) {
  return part && part.$ref && Object.keys(part).length === 1 ? resolved(found(part.$ref)) : part;
}

/** Render `code` and **strong** of a description; all other text is unchanged. */
function prose(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`") && part.length > 1) return make("code", "", part.slice(1, -1));
    if (part.startsWith("**")) return make("strong", "", part.slice(2, -2));
    return part;
  });
}

/* Schemas */

/** Return a schema merged with those that it refers to or combines. */
function merged(schema, depth = 0) {
  if (!schema || depth > 20) return {};
  let whole = {};
  const parts = [schema.$ref && found(schema.$ref), ...(schema.allOf || [])].filter(Boolean);
  for (const part of parts) whole = { ...whole, ...merged(part, depth + 1) };
  return { properties: {}, ...whole, ...schema };
}

function alternatives(schema) {
  return schema.anyOf || null;
}

/** Return the alternative that is not null. */
function principal(schema) {
  const whole = merged(schema);
  const others = (alternatives(whole) || []).filter((part) => part.type !== "null");
  return others.length
    ? { ...merged(others[0]), description: whole.description || merged(others[0]).description }
    : whole;
}

function typeOf(schema) {
  const whole = merged(schema);
  const others = alternatives(whole) || [];
  if (others.length) return [...new Set(others.map(typeOf))].join(" or ");
  if (whole.const !== undefined) return JSON.stringify(whole.const);
  if (whole.type === "array") return `array of ${typeOf(whole.items || {}) || "anything"}`;
  if (Array.isArray(whole.type)) return whole.type.join(" or ");
  if (whole.type) return whole.format ? `${whole.type}, ${whole.format}` : whole.type;
  if (whole.enum) return "one of";
  return Object.keys(whole.properties).length ? "object" : "";
}

const LIMITS = [
  ["minimum", (limit) => `at least ${limit}`],
  ["exclusiveMinimum", (limit) => `more than ${limit}`],
  ["maximum", (limit) => `at most ${limit}`],
  ["minLength", (limit) => (limit === 1 ? "not empty" : `at least ${limit} characters`)],
  ["maxLength", (limit) => `at most ${limit} characters`],
  ["minItems", (limit) => `at least ${limit} ${limit === 1 ? "entry" : "entries"}`],
  ["maxItems", (limit) => `at most ${limit} entries`],
  ["default", (value) => `${JSON.stringify(value)} when absent`],
];

/** Return paragraphs about a schema: description, values, limits. */
function remarks(schema, more) {
  const whole = {
    ...principal(schema),
    ...(schema.default === undefined ? {} : { default: schema.default }),
  };
  const notes = [];
  if (more) notes.push(make("p", "", ...prose(more)));
  if (whole.description && whole.description !== more)
    notes.push(make("p", "", ...prose(whole.description)));
  const values =
    whole.enum || (whole.type === "array" && whole.items && principal(whole.items).enum);
  if (values)
    notes.push(
      make(
        "p",
        "",
        ...values.flatMap((value, at) => [at ? " " : "", make("code", "", text(value))]),
      ),
    );
  const limits = LIMITS.filter(([name]) => whole[name] !== undefined).map(([name, say]) =>
    say(whole[name]),
  );
  if (limits.length) notes.push(make("p", "", sentence(limits.join(", "))));
  if (whole.pattern === "\\S") notes.push(make("p", "", "Not blank."));
  else if (whole.pattern && whole.pattern.length <= LONGEST_PATTERN)
    notes.push(make("p", "", "Matches ", make("code", "", whole.pattern)));
  return notes;
}

function sentence(words) {
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

function text(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return table rows for the members of a schema, and for their members. */
function rowsOf(schema, depth = 0, seen = []) {
  const whole = principal(schema);
  if (whole.type === "array" || (whole.items && !whole.type))
    return rowsOf(whole.items || {}, depth, seen);
  const required = new Set(whole.required);
  return Object.entries(whole.properties).flatMap(([name, part]) => {
    const label = make(
      "td",
      `name depth${depth}`,
      name,
      required.has(name) ? make("span", "must", "required") : "",
    );
    const row = make(
      "tr",
      `under${depth}`,
      label,
      make("td", "", typeOf(part)),
      make("td", "", ...remarks(part)),
    );
    const key = part.$ref || name;
    const below =
      depth < DEEPEST && !seen.includes(key) ? rowsOf(part, depth + 1, [...seen, key]) : [];
    return [row, ...below];
  });
}

function table(heads, rows) {
  const head = make("tr", "", ...heads.map((head) => make("th", "", head)));
  return make("table", "", make("thead", "", head), make("tbody", "", ...rows));
}

function schemaTable(schema) {
  const rows = rowsOf(schema);
  return rows.length
    ? table(["Member", "Type", ""], rows)
    : make("p", "", typeOf(schema) === "object" ? "A JSON object." : typeOf(schema));
}

/* Samples */

function sample(caption, content) {
  const button = make("button", "copy", "Copy");
  button.type = "button";
  const block = make("pre", "", content);
  block.tabIndex = 0;
  button.addEventListener("click", async () => {
    button.textContent = (await copied(content, block)) ? "Copied" : "Select and copy";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return make("figure", "sample", caption ? make("figcaption", "", caption) : "", block, button);
}

async function copied(content, block) {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    getSelection().selectAllChildren(block);
    return document.execCommand("copy");
  }
}

function examplesOf(media) {
  if (media.example !== undefined) return [["", media.example]];
  return Object.values(media.examples || {}).map((example) => [
    example.summary || "",
    example.value,
  ]);
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}

function quoted(value) {
  return `'${value.replaceAll("'", "'\\''")}'`;
}

/** Return a curl command with the first example as its body. */
function curl(method, path, operation) {
  const filled = path.replace(/{(\w+)}/g, (_, name) =>
    operation.parameters.some((p) => p.name === name && p.schema.type === "string") ? "ID" : "42",
  );
  const command = method === "get" ? "curl" : `curl -X ${method.toUpperCase()}`;
  const lines = [`${command} ${quoted(location.origin + filled)}`];
  for (const name of schemes(operation))
    lines.push(`-H "${found(`#/components/securitySchemes/${name}`).name}: $API_KEY"`);
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  if (media) {
    const [first] = examplesOf(media);
    lines.push(
      "-H 'Content-Type: application/json'",
      `-d ${quoted(pretty(first ? first[1] : {}))}`,
    );
  }
  return lines.join(" \\\n  ");
}

function schemes(operation) {
  return (operation.security || []).flatMap((names) => Object.keys(names));
}

/* Operations */

function parameterTable(parameters) {
  return table(
    ["Parameter", "Type", ""],
    parameters.map((parameter) => {
      const must = parameter.required ? make("span", "must", "required") : "";
      const place = `${typeOf(parameter.schema)}, in the ${parameter.in}`;
      const about = make("td", "", ...remarks(parameter.schema, parameter.description));
      return make("tr", "", make("td", "name", parameter.name, must), make("td", "", place), about);
    }),
  );
}

function responseDetail(status, reference) {
  const response = resolved(reference);
  const summary = make(
    "summary",
    "",
    make("span", `status ${status < "400" ? "good" : "bad"}`, status),
    response.description || "",
  );
  return lazily(make("details", "response", summary), () => {
    const parts = [];
    const names = Object.keys(response.headers || {});
    if (names.length)
      parts.push(
        make(
          "p",
          "access",
          "Headers: ",
          ...names.flatMap((name, at) => [at ? ", " : "", make("code", "", name)]),
        ),
      );
    for (const [type, media] of Object.entries(response.content || {})) {
      if (type !== "application/json") parts.push(make("p", "", `The body is ${type}.`));
      else {
        for (const [caption, value] of examplesOf(media))
          parts.push(sample(caption, pretty(value)));
        for (const schema of alternatives(media.schema) || [media.schema])
          parts.push(schemaTable(schema));
      }
    }
    return parts;
  });
}

/** Return a details element that is filled when it is opened. */
function lazily(details, parts) {
  const fill = () => {
    if (details.dataset.filled) return;
    details.dataset.filled = "yes";
    details.append(
      make("div", details.classList.contains("operation") ? "detail" : "", ...parts()),
    );
  };
  details.addEventListener("toggle", () => details.open && fill());
  details.fill = fill;
  return details;
}

/** Return the details of an operation, or of a webhook: a request that the service sends. */
function operationDetail(method, path, operation, isWebhook = false) {
  operation.parameters = (operation.parameters || []).map(resolved);
  const summary = make(
    "summary",
    "",
    make("span", `method ${method}`, method.toUpperCase()),
    make("h3", "", operation.summary || operation.operationId),
    make("span", "path", path),
  );
  const details = lazily(make("details", "operation", summary), () => {
    const parts = [];
    if (operation.description) parts.push(make("p", "", ...prose(operation.description)));
    if (!isWebhook) parts.push(make("p", "access", ...access(operation)));
    if (operation.parameters.length)
      parts.push(make("h4", "", "Parameters"), parameterTable(operation.parameters));
    const media = operation.requestBody && operation.requestBody.content["application/json"];
    if (media) {
      parts.push(make("h4", "", "Body"), schemaTable(media.schema));
      for (const [caption, value] of examplesOf(media)) parts.push(sample(caption, pretty(value)));
    }
    if (!isWebhook)
      parts.push(make("h4", "", "Request"), sample("", curl(method, path, operation)));
    parts.push(make("h4", "", "Responses"));
    for (const [status, response] of Object.entries(operation.responses))
      parts.push(responseDetail(status, response));
    return parts;
  });
  details.id = operation.operationId;
  details.dataset.words = [
    method,
    path,
    operation.summary,
    operation.description,
    ...Object.keys(operation.responses),
  ]
    .join(" ")
    .toLowerCase();
  return details;
}

function access(operation) {
  const names = schemes(operation);
  if (!names.length) return ["Needs no key."];
  return [
    "Needs a key in ",
    ...names.map((name) => make("code", "", found(`#/components/securitySchemes/${name}`).name)),
    ".",
  ];
}

/* The page */

function sections() {
  const groups = new Map((api.tags || []).map((tag) => [tag.name, []]));
  const add = (path, methods, isWebhook) => {
    for (const method of METHODS.filter((name) => methods[name])) {
      const tag = (methods[method].tags || ["Other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationDetail(method, path, methods[method], isWebhook));
    }
  };
  for (const [path, methods] of Object.entries(api.paths)) add(path, methods, false);
  for (const [name, methods] of Object.entries(api.webhooks || {})) add(name, methods, true);
  return groups;
}

function link(details) {
  const anchor = make("a", "", details.querySelector("h3").textContent);
  anchor.href = `#${details.id}`;
  return make("li", "", anchor);
}

function show() {
  document.title = api.info.title;
  document.getElementById("title").textContent = api.info.title;
  document.getElementById("version").textContent = `Version ${api.info.version}`;
  document
    .getElementById("introduction")
    .append(...api.info.description.split("\n\n").map((part) => make("p", "", ...prose(part))));
  const texts = new Map((api.tags || []).map((tag) => [tag.name, tag.description || ""]));
  for (const [tag, operations] of sections()) {
    const about = make("p", "", ...prose(texts.get(tag) || ""));
    document
      .getElementById("reference")
      .append(make("section", "", make("h2", "", tag), about, ...operations));
    document
      .getElementById("contents")
      .append(make("div", "", make("h2", "", tag), make("ul", "", ...operations.map(link))));
  }
  document.getElementById("news").textContent = "";
  openNamed();
}

/** Open the operation that the address names. */
function openNamed() {
  const details =
    location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!details || !details.fill) return;
  details.fill();
  details.open = true;
  details.scrollIntoView();
}

function narrow(wish) {
  const words = wish.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const section of document.querySelectorAll("#reference > section")) {
    let here = 0;
    for (const details of section.querySelectorAll(".operation")) {
      const matches = words.every((word) => details.dataset.words.includes(word));
      details.classList.toggle("away", !matches);
      here += matches;
    }
    section.classList.toggle("away", !here);
    left += here;
  }
  for (const anchor of document.querySelectorAll("#contents a")) {
    const away = document.getElementById(anchor.hash.slice(1)).classList.contains("away");
    anchor.parentElement.classList.toggle("away", away);
  }
  for (const group of document.querySelectorAll("#contents > div")) {
    group.classList.toggle("away", !group.querySelector("li:not(.away)"));
  }
  document.getElementById("news").textContent = left ? "" : "No operation has all of these words.";
}

async function begin() {
  try {
    const response = await fetch("/api/openapi.json");
    if (!response.ok) throw new Error(`The service answered ${response.status}.`);
    api = await response.json();
    show();
  } catch (fault) {
    document.getElementById("news").textContent =
      `The description could not be shown. ${fault.message}`;
    throw fault;
  }
  document.getElementById("find").addEventListener("input", (event) => narrow(event.target.value));
  addEventListener("hashchange", openNamed);
}

begin();
