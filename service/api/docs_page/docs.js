// Renders /api/openapi.json. Text is inserted as text, never as markup.
"use strict";

const METHODS = ["get", "post", "put", "delete", "patch"];
const LONGEST_PATTERN = 60;
let api;

const at = (id) => document.getElementById(id);
const pretty = (value) => JSON.stringify(value, null, 2);

/** Create an element with a class, and children that are elements or text. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== "" && child != null));
  return element;
}

/** Return the part of the description that a reference names, or the part itself. */
function resolved(part) {
  if (!part || !part.$ref) return part || {};
  const names = part.$ref.slice(2).split("/");
  const unescaped = names.map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  return resolved(unescaped.reduce((found, name) => found[name], api));
}

/** Render `code` and **strong** of a description; all other text is unchanged. */
function prose(text) {
  return (text || "").split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`")) return make("code", "", part.slice(1, -1));
    return part.startsWith("**") ? make("strong", "", part.slice(2, -2)) : part;
  });
}

/* Schemas */

/** Return a schema merged with those that it refers to or combines, or the one that is not null. */
function merged(schema) {
  const { $ref, allOf, anyOf, ...own } = schema || {};
  const other = (anyOf || []).find((part) => part.type !== "null");
  const parts = [$ref && resolved(schema), ...(allOf || []), other].filter(Boolean);
  return Object.assign({ properties: {} }, ...parts.map(merged), own);
}

function typeOf(schema) {
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeOf))].join(" or ");
  const whole = merged(schema);
  if (whole.const !== undefined) return JSON.stringify(whole.const);
  if (whole.type === "array") return `array of ${typeOf(whole.items || {}) || "anything"}`;
  if (Array.isArray(whole.type)) return whole.type.join(" or ");
  if (whole.type) return whole.format ? `${whole.type}, ${whole.format}` : whole.type;
  return Object.keys(whole.properties).length ? "object" : "";
}

const LIMITS = [
  ["minimum", (limit) => `at least ${limit}`],
  ["exclusiveMinimum", (limit) => `more than ${limit}`],
  ["maximum", (limit) => `at most ${limit}`],
  ["minLength", (limit) => `at least ${limit} characters`],
  ["maxLength", (limit) => `at most ${limit} characters`],
  ["minItems", (limit) => `at least ${limit} entries`],
  ["maxItems", (limit) => `at most ${limit} entries`],
  ["default", (value) => `${JSON.stringify(value)} when absent`],
];

/** Return what is to be known of a schema: description, limits, pattern, values. */
function remarks(schema, more) {
  const whole = merged(schema);
  const limits = LIMITS.filter(([name]) => whole[name] !== undefined);
  const notes = [" ", ...prose(more || whole.description)];
  if (limits.length) notes.push(` (${limits.map(([name, say]) => say(whole[name])).join(", ")})`);
  if (whole.pattern && whole.pattern.length <= LONGEST_PATTERN)
    notes.push(" Matches ", make("code", "", whole.pattern), ".");
  const values = whole.enum || merged(whole.items).enum || [];
  return [...notes, ...values.flatMap((value) => [" ", make("code", "", String(value))])];
}

/** Return a list entry for a member or parameter. */
function entry(name, isRequired, type, ...more) {
  const must = isRequired ? make("span", "must", " required") : "";
  return make("li", "", make("span", "name", name), must, make("span", "type", ` ${type}`), ...more);
}

/** Return the list of the members of a schema, each with its own members. */
function members(schema, seen = []) {
  const whole = merged(schema);
  if (whole.items) return members(whole.items, seen);
  const entries = Object.entries(whole.properties).map(([name, part]) => {
    const key = part.$ref || name;
    const below = seen.includes(key) ? "" : members(part, [...seen, key]);
    const isRequired = (whole.required || []).includes(name);
    return entry(name, isRequired, typeOf(part), ...remarks(part), below);
  });
  return entries.length ? make("ul", "members", ...entries) : "";
}

/** Return the examples and the members of a body. */
function body(content) {
  return Object.entries(content || {}).flatMap(([type, media]) => {
    if (type !== "application/json") return [make("p", "", `The body is ${type}.`)];
    const examples = Object.values(media.examples || {});
    if (media.example !== undefined) examples.push({ value: media.example });
    return [
      ...(media.schema.anyOf || [media.schema]).map((schema) => members(schema)),
      ...examples.map((one) => make("div", "", one.summary || "", make("pre", "", pretty(one.value)))),
    ];
  });
}

/* Operations */

/** Return the names of the headers with a key that an operation needs. */
function keysOf(operation) {
  const names = (operation.security || []).flatMap((scheme) => Object.keys(scheme));
  return names.map((name) => api.components.securitySchemes[name].name);
}

/** Return a curl command with the first example as its body. */
function curl(method, path, operation) {
  const lines = [`curl -X ${method.toUpperCase()} '${location.origin}${path}'`];
  for (const name of keysOf(operation)) lines.push(`-H "${name}: $API_KEY"`);
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  const [example] = media ? Object.values(media.examples || { one: { value: media.example } }) : [];
  const sent = example && JSON.stringify(example.value).replaceAll("'", "'\\''");
  if (media) lines.push("-H 'Content-Type: application/json'", `-d '${sent || "{}"}'`);
  return lines.join(" \\\n  ");
}

/** Return a details element that is filled when it is opened. */
function lazily(className, summary, parts) {
  const details = make("details", className, make("summary", "", ...summary));
  details.addEventListener("toggle", () => {
    if (details.childElementCount === 1) details.append(make("div", "detail", ...parts()));
  });
  return details;
}

function response([status, reference]) {
  const found = resolved(reference);
  const label = make("span", status < "400" ? "good" : "bad", status);
  return lazily("", [label, ` ${found.description || ""}`], () => {
    const names = Object.keys(found.headers || {}).join(", ");
    return [names ? make("p", "", `Headers: ${names}`) : "", ...body(found.content)];
  });
}

/** Return the details of an operation, or of a webhook: a request that the service sends. */
function operation(method, path, one, isWebhook) {
  const label = make("span", "method", method.toUpperCase());
  const title = make("h3", "", one.summary || one.operationId);
  const details = lazily("operation", [label, title, make("span", "path", ` ${path}`)], () => {
    const parameters = (one.parameters || []).map(resolved).map((each) => {
      const type = `${typeOf(each.schema)}, in the ${each.in}`;
      return entry(each.name, each.required, type, ...remarks(each.schema, each.description));
    });
    const keys = keysOf(one).join(", ");
    return [
      make("p", "", ...prose(one.description)),
      isWebhook ? "" : make("p", "type", keys ? `Needs a key in ${keys}.` : "Needs no key."),
      parameters.length ? make("h4", "", "Parameters") : "",
      make("ul", "members", ...parameters),
      one.requestBody ? make("h4", "", "Body") : "",
      ...body(one.requestBody && one.requestBody.content),
      isWebhook ? "" : make("pre", "", curl(method, path, one)),
      make("h4", "", "Responses"),
      ...Object.entries(one.responses).map(response),
    ];
  });
  details.id = one.operationId;
  const statuses = Object.keys(one.responses).join(" ");
  details.dataset.words = [method, path, one.summary, one.description, statuses].join(" ").toLowerCase();
  return details;
}

/* The page */

function show() {
  document.title = at("title").textContent = api.info.title;
  at("version").textContent = `Version ${api.info.version}`;
  const paragraphs = api.info.description.split("\n\n");
  at("introduction").append(...paragraphs.map((text) => make("p", "", ...prose(text))));
  const sections = new Map();
  for (const tag of api.tags || [])
    sections.set(tag.name, make("section", "", make("h2", "", tag.name), ...prose(tag.description)));
  for (const [paths, isWebhook] of [[api.paths, false], [api.webhooks || {}, true]])
    for (const [path, methods] of Object.entries(paths))
      for (const method of METHODS.filter((name) => methods[name]))
        sections.get(methods[method].tags[0]).append(operation(method, path, methods[method], isWebhook));
  at("reference").append(...sections.values());
  at("news").textContent = "";
}

/** Open the operation that the address names. */
function openNamed() {
  const details = at(decodeURIComponent(location.hash.slice(1)));
  if (details && details.matches(".operation")) details.open = true;
  if (details) details.scrollIntoView();
}

/** Show the operations that have all words of a text. */
function narrow(text) {
  const words = text.toLowerCase().split(/\s+/);
  for (const section of document.querySelectorAll("section")) {
    const operations = [...section.querySelectorAll(".operation")];
    for (const one of operations) one.hidden = !words.every((word) => one.dataset.words.includes(word));
    section.hidden = operations.every((one) => one.hidden);
  }
  const isEmpty = !document.querySelector("section:not([hidden])");
  at("news").textContent = isEmpty ? "No operation has all of these words." : "";
}

async function begin() {
  try {
    const answer = await fetch("/api/openapi.json");
    if (!answer.ok) throw new Error(`The service answered ${answer.status}.`);
    api = await answer.json();
    show();
  } catch (fault) {
    at("news").textContent = `The description could not be shown. ${fault.message}`;
    throw fault;
  }
  openNamed();
  at("find").addEventListener("input", (event) => narrow(event.target.value));
  addEventListener("hashchange", openNamed);
}

begin();
